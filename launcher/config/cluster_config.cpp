#include "launcher/config/cluster_config.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/ranges.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "launcher/config/config_mistakes.hpp"
#include "launcher/config/config_schema.hpp"
#include "launcher/config/config_value.hpp"
#include "launcher/config/nearest.hpp"

namespace troupe {
namespace {

constexpr std::size_t largest_file_bytes = 1 << 20;

std::string_view section_of(std::string_view key) {
  const auto dot = key.find('.');
  return dot == key.npos ? std::string_view{} : key.substr(0, dot);
}

std::string_view leaf_of(std::string_view key) {
  const auto dot = key.find('.');
  return dot == key.npos ? key : key.substr(dot + 1);
}

bool is_section(std::string_view name) {
  for (const KeySpec& spec : config_schema()) {
    if (section_of(spec.key) == name) return true;
  }
  return false;
}

/// The advice after "unknown key": the nearest key of the section, else the same or nearest key
/// name in another section, else the section's keys.
std::string advice(std::string_view key) {
  const std::string_view section = section_of(key);
  std::vector<std::string_view> siblings;
  std::vector<std::string_view> leaves;
  for (const KeySpec& spec : config_schema()) {
    leaves.push_back(leaf_of(spec.key));
    if (section.empty() && !section_of(spec.key).empty()) {
      siblings.push_back(section_of(spec.key));
    } else if (section_of(spec.key) == section) {
      siblings.push_back(leaf_of(spec.key));
    }
  }
  if (const auto near = nearest(leaf_of(key), siblings); !near.empty()) {
    return section.empty() ? fmt::format("did you mean {}?", near)
                           : fmt::format("did you mean {}.{}?", section, near);
  }
  if (const auto near = nearest(leaf_of(key), leaves); !near.empty()) {
    for (const KeySpec& spec : config_schema()) {
      if (leaf_of(spec.key) == near) return fmt::format("did you mean {}?", spec.key);
    }
  }
  std::string known;
  for (std::size_t i = 0; i < siblings.size(); ++i) {
    if (i > 0 && siblings[i] == siblings[i - 1]) continue;
    known += (known.empty() ? "" : ", ") + std::string(siblings[i]);
  }
  return fmt::format("{}: {}", section.empty() ? "the sections are" : "known here", known);
}

/// Scans a YAML text for documents with content, up to the second. YAML::LoadAll is not used: it
/// does not terminate on some texts that are no YAML.
class DocumentScan final : public YAML::EventHandler {
 public:
  /// Throws YAML::Exception.
  explicit DocumentScan(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    for (int i = 0; i < 2 && parser.HandleNextDocument(*this); ++i) {
      if (!has_content_) break;
      ++count_;
      last_line_ = line_;
    }
  }
  int count() const { return count_; }
  int last_line() const { return last_line_; }

  void OnDocumentStart(const YAML::Mark&) override { has_content_ = false; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { content(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string&) override {
    content(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    content(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    content(mark);
  }
  void OnMapEnd() override {}

 private:
  void content(const YAML::Mark& mark) {
    if (!has_content_) line_ = mark.line + 1;
    has_content_ = true;
  }

  bool has_content_ = false;
  int line_ = 1;
  int count_ = 0;
  int last_line_ = 1;
};

struct Given {
  YAML::Node node;
  std::string where;
  bool is_override = false;
};

class ConfigParser {
 public:
  ConfigParser(std::string_view file_name, ConfigMistakes& mistakes)
      : file_name_(file_name), mistakes_(mistakes) {}

  /// Collects the values of the text; false if it is not one YAML mapping, and nothing else is
  /// worth reporting.
  bool read(std::string_view text) {
    try {
      const DocumentScan documents{std::string(text)};
      if (documents.count() == 0) {
        mistakes_.add(1, at(1), "the file is empty; it needs at least model: {path: FOLDER}");
        return false;
      }
      if (documents.count() > 1) {
        const int line = documents.last_line();
        mistakes_.add(line, at(line), "a second document (---); one file is one topology");
        return false;
      }
      return read_root(YAML::Load(std::string(text)));
    } catch (const YAML::Exception& error) {
      const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
      mistakes_.add(line, at(line), fmt::format("not valid YAML: {}", error.msg));
      return false;
    }
  }

  void apply(const Override& override) {
    const std::string& where = override.origin;
    if (!check_key(override.key, where, 0)) return;
    const KeySpec* spec = find_key(override.key);
    try {
      YAML::Node node;
      if (spec->type == ValueType::text) {
        node = YAML::Node(override.value);
      } else {
        node = YAML::Load(override.value);
      }
      given_[spec->key] = {node, where, true};
    } catch (const YAML::Exception& error) {
      mistakes_.add(0, where, fmt::format("the value is not valid YAML: {}", error.msg));
    }
  }

  Config finish(Purpose purpose) {
    Config config;
    for (const KeySpec& spec : config_schema()) {
      const auto found = given_.find(spec.key);
      if (found == given_.end()) {
        if (!spec.default_value.empty()) {
          spec.set(config, *read_value(spec, YAML::Load(std::string(spec.default_value))));
        }
        continue;
      }
      const Given& given = found->second;
      const int line = given.is_override ? 0 : given.node.Mark().line + 1;
      const auto value = read_value(spec, given.node);
      if (!value) {
        mistakes_.add(line, given.where, value.error().message);
      } else {
        spec.set(config, *value);
      }
    }
    for (const auto& [key, given] : given_) check_effect(*find_key(key), given, config);
    require(config.model.path, "model.path", "the folder of the checkpoint");
    if (purpose == Purpose::run) {
      require(config.job.input, "job.input", "the requests; or give --input FILE");
      require(config.job.output, "job.output", "where answers go; or give --output FILE");
    }
    if (config.job.shard_index >= config.job.num_shards) {
      mistakes_.add(last_line, std::string(file_name_),
                    fmt::format("job.shard_index {} is not below job.num_shards {}",
                                config.job.shard_index, config.job.num_shards));
    }
    auto& names = config.model.served_model_name;
    const bool any = std::erase(names, any_model_name) > 0;
    if (names.empty()) names = {model_folder_name(config.model.path)};
    if (any) names.emplace_back(any_model_name);
    return config;
  }

 private:
  std::string at(int line) const { return fmt::format("{}:{}", file_name_, line); }

  void require(const std::string& value, std::string_view key, std::string_view what) {
    if (!value.empty() || given_.contains(key)) return;
    mistakes_.add(last_line, std::string(file_name_), fmt::format("{} is missing: {}", key, what));
  }

  /// Refuses a value that would change nothing. The default may stand, as in what check prints.
  void check_effect(const KeySpec& spec, const Given& given, const Config& config) {
    const EffectiveWith& with = spec.effective_with;
    if (with.key.empty() || value_of(spec, config) == spec.default_value) return;
    const std::string value = value_of(*find_key(with.key), config);
    if (value.empty() || std::ranges::find(with.values, value) != with.values.end()) {
      return;
    }
    mistakes_.add(given.is_override ? 0 : given.node.Mark().line + 1, given.where,
                  fmt::format("{} has no effect where {} is {}: leave it out, or set {}: {}",
                              spec.key, with.key, value, with.key, fmt::join(with.values, " or ")));
  }

  bool read_root(const YAML::Node& root) {
    if (!root.IsMap()) {
      mistakes_.add(1, at(root.Mark().line + 1),
                    fmt::format("expected sections (model: ...), found {}", kind_of(root)));
      return false;
    }
    std::map<std::string, int> seen;
    for (const auto& entry : root) {
      const int line = entry.first.Mark().line + 1;
      if (!check_fresh(entry.first, "", line, seen)) continue;
      const std::string name = entry.first.Scalar();
      if (!is_section(name)) {
        if (check_key(name, at(line), line)) given_[find_key(name)->key] = {entry.second, at(line)};
      } else if (entry.second.IsMap()) {
        read_section(name, entry.second);
      } else if (!entry.second.IsNull()) {
        mistakes_.add(line, at(line),
                      fmt::format("{} is a section: expected keys below it, found {}", name,
                                  kind_of(entry.second)));
      }
    }
    return true;
  }

  void read_section(const std::string& section, const YAML::Node& node) {
    std::map<std::string, int> seen;
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!check_fresh(entry.first, section + ".", line, seen)) continue;
      const std::string key = section + "." + entry.first.Scalar();
      if (check_key(key, at(line), line)) given_[find_key(key)->key] = {entry.second, at(line)};
    }
  }

  bool check_fresh(const YAML::Node& key, const std::string& prefix, int line,
                   std::map<std::string, int>& seen) {
    if (!key.IsScalar()) {
      mistakes_.add(line, at(line), fmt::format("a key must be a word, found {}", kind_of(key)));
      return false;
    }
    const auto [position, fresh] = seen.emplace(key.Scalar(), line);
    if (fresh) return true;
    mistakes_.add(line, at(line),
                  fmt::format("{}{} is given twice, first in line {}", prefix, key.Scalar(),
                              position->second));
    return false;
  }

  bool check_key(const std::string& key, const std::string& where, int line) {
    if (find_key(key) != nullptr) return true;
    if (is_section(key)) {
      mistakes_.add(line, where, fmt::format("{} is a section, not a key", key));
    } else {
      mistakes_.add(line, where, fmt::format("unknown key {}; {}", shortened(key), advice(key)));
    }
    return false;
  }

  static constexpr int last_line = 1 << 30;  // sorts missing keys after wrong ones
  std::string_view file_name_;
  ConfigMistakes& mistakes_;
  std::map<std::string_view, Given> given_;  // keys are those of the schema
};

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::invalid_argument, "{}: this is a folder; --config wants a YAML file",
                path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int why = errno;
    if (why == ENOENT || why == ENOTDIR) {
      return fail(ErrorCode::not_found, "{}: no such file (paths count from {})", path,
                  std::filesystem::current_path(error).string());
    }
    return fail_errno(why, fmt::format("cannot read {}", path));
  }
  std::string text(largest_file_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > largest_file_bytes) {
    return fail(ErrorCode::invalid_argument, "{}: over 1 MiB; this is not a cluster YAML", path);
  }
  return text;
}

}  // namespace

Result<Override> parse_override(std::string_view argument) {
  const auto equals = argument.find('=');
  if (equals == argument.npos || equals == 0) {
    return fail(ErrorCode::invalid_argument,
                "--set {}: expected key=value, e.g. --set engine.block_size=32", argument);
  }
  return Override{fmt::format("--set {}", argument), std::string(argument.substr(0, equals)),
                  std::string(argument.substr(equals + 1))};
}

Result<Config> load_config(const std::string& path, std::span<const Override> overrides,
                           Purpose purpose) {
  TROUPE_TRY(const std::string text, read_file(path));
  return parse_config(text, path, overrides, purpose);
}

Result<Config> parse_config(std::string_view text, std::string_view file_name,
                            std::span<const Override> overrides, Purpose purpose) {
  ConfigMistakes mistakes;
  ConfigParser parser(file_name, mistakes);
  const bool read = parser.read(text);
  if (!read) return mistakes.error();
  for (const Override& override : overrides) parser.apply(override);
  Config config = parser.finish(purpose);
  if (!mistakes.empty()) return mistakes.error();
  return config;
}

std::string model_folder_name(const std::string& path) {
  std::error_code problem;
  const auto absolute = std::filesystem::absolute(path, problem).lexically_normal();
  const auto folder = absolute.has_filename() ? absolute : absolute.parent_path();
  return folder.filename().empty() ? "model" : folder.filename().string();
}

std::string to_yaml(const Config& config) {
  std::string result;
  std::string_view section;
  for (const KeySpec& spec : config_schema()) {
    const std::string value = value_of(spec, config);
    // An absent text has no spelling that would be read back.
    if (spec.type == ValueType::text && value == "\"\"") continue;
    if (section_of(spec.key) != section) {
      section = section_of(spec.key);
      result += fmt::format("{}:\n", section);
    }
    result += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ", leaf_of(spec.key), value);
  }
  return result;
}

}  // namespace troupe
