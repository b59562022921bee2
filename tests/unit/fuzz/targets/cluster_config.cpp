#include "launcher/config/cluster_config.hpp"

#include "models/text/unicode/utf8.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

constexpr std::string_view words[] = {"&a ",
                                      "*a",
                                      "<<: *a",
                                      "!!binary ",
                                      "{",
                                      "[",
                                      "- ",
                                      "? ",
                                      ": ",
                                      "\n---\n",
                                      "\n  ",
                                      "\t",
                                      "|\n",
                                      ">-\n",
                                      "%YAML 1",
                                      "\"\\x",
                                      "auto",
                                      "~",
                                      "engine:\n  ",
                                      ".inf",
                                      "0x7fffffffffffffff",
                                      "1e999",
                                      "#",
                                      "true",
                                      "'",
                                      "parallel: {a: 1}",
                                      "job: []",
                                      "name: ",
                                      "[[[[[[[[[[[[[[[[[[[[[[[[[["};

/// Values to put in place of another.
constexpr std::string_view values[] = {"auto",
                                       "~",
                                       "null",
                                       "true",
                                       "yes",
                                       "0",
                                       "1",
                                       "-1",
                                       "8",
                                       "16",
                                       "1e9",
                                       "0.5",
                                       ".nan",
                                       "-.inf",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "0o17",
                                       "0b11",
                                       "0x7fffffff",
                                       "''",
                                       "\"\\0\"",
                                       "[1, 2]",
                                       "{a: b}",
                                       "&a x",
                                       "*a",
                                       "!!str 5",
                                       "!!int \"7\"",
                                       "2026-11-22",
                                       "localhost",
                                       "shm",
                                       "cpu",
                                       "cuda",
                                       "bfloat16",
                                       "fcfs",
                                       "ngram",
                                       "|\n    text",
                                       "[[[[[[]]]]]]",
                                       "? a",
                                       "<<"};

struct YamlLine {
  std::size_t begin = 0;
  std::size_t value = 0;  ///< after "key: "
  std::size_t end = 0;    ///< without the newline
};

std::vector<YamlLine> lines_with_keys(const std::string& text) {
  std::vector<YamlLine> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t colon = text.find(':', begin);
    if (colon < end) lines.push_back({begin, std::min(colon + 2, end), end});
    begin = end + 1;
  }
  return lines;
}

/// Changes the structure rather than bytes: moves or doubles a value or section, or changes its
/// depth.
void change_structure(Mutator& mutator, std::string& text) {
  const std::vector<YamlLine> lines = lines_with_keys(text);
  if (lines.empty()) return;
  const YamlLine& line = lines[mutator.below(lines.size())];
  const YamlLine& other = lines[mutator.below(lines.size())];
  switch (mutator.below(6)) {
    case 0:  // another key's value
      text.replace(line.value, line.end - line.value,
                   text.substr(other.value, other.end - other.value));
      return;
    case 1:
      text.insert(line.begin, mutator.one_in(2) ? "  " : "    ");
      return;
    case 2:
      text.insert(line.begin, text.substr(other.begin, other.end - other.begin) + "\n");
      return;
    case 3:
      text.erase(line.begin, line.end - line.begin);
      return;
    default:
      text.replace(line.value, line.end - line.value,
                   std::string(mutator.one_of<std::string_view>(values)));
  }
}

constexpr std::string_view sets[] = {"engine.block_size=16", "model.path=x", "name=[1, 2]",
                                     "cluster.hosts=[a, b]", "engine.max_num_seqs=auto"};

}  // namespace

void changed_cluster_configs(Effort effort) {
  std::vector<std::string> files;
  const auto folder = std::filesystem::path(TROUPE_SOURCE_DIR) / "configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(golden::file_bytes(entry.path()));
  }
  ASSERT_FALSE(files.empty());
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string text = files[mutator.below(files.size())];
    for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) {
      if (mutator.one_in(2)) {
        change_structure(mutator, text);
      } else {
        text = mutator.bytes(text, words);
      }
    }
    std::vector<Override> overrides;
    if (mutator.one_in(3)) {
      const auto set =
          parse_override(mutator.bytes(std::string(mutator.one_of<std::string_view>(sets)), words));
      if (set.ok()) overrides.push_back(*set);
    }
    const auto config = parse_config(text, "c.yaml", overrides, Purpose::check);
    if (!config.ok()) {
      EXPECT_FALSE(config.error().message.empty());
      return;
    }
    ++taken;
    // Its printed form parses to the same configuration.
    const std::string printed = to_yaml(*config);
    const auto again = parse_config(printed, "printed", {}, Purpose::check);
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << printed << "\nof\n" << text;
    EXPECT_EQ(to_yaml(*again), printed) << text;
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
