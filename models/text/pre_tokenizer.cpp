#include "models/text/pre_tokenizer.hpp"

#include <cctype>

#include <nlohmann/json.hpp>

#include "models/text/json_file.hpp"

namespace troupe::text {
namespace {

constexpr std::string_view gpt2_pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string escape_literal(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const nlohmann::json& pre_tokenizer) {
  PreTokenizer out;
  TROUPE_CHECK(out.add(pre_tokenizer, 0));
  return out;
}

Result<> PreTokenizer::add(const nlohmann::json& pre_tokenizer, int depth) {
  if (pre_tokenizer.is_null()) return {};
  const auto type = pre_tokenizer.at("type").get<std::string>();
  if (type == "Sequence") {
    TROUPE_CHECK(check_sequence_depth(depth));
    for (const auto& step : pre_tokenizer.at("pretokenizers")) TROUPE_CHECK(add(step, depth + 1));
    return {};
  }
  if (is_byte_level_) return fail(ErrorCode::unsupported, "pre_tokenizer {} after ByteLevel", type);
  Step step;
  if (type == "Split") {
    const auto& pattern = pre_tokenizer.at("pattern");
    const auto regex = pattern.contains("Regex")
                           ? pattern.at("Regex").get<std::string>()
                           : escape_literal(pattern.at("String").get<std::string>());
    TROUPE_TRY(step.regex, Regex::compile(regex));
    const auto behavior = pre_tokenizer.at("behavior").get<std::string>();
    const bool inverted = pre_tokenizer.at("invert").get<bool>();
    if (behavior == "Removed") {
      step.removes_matches = !inverted;
      step.removes_between = inverted;
    } else if (behavior != "Isolated") {
      return fail(ErrorCode::unsupported, "pre_tokenizer Split with behavior {}", behavior);
    }
  } else if (type == "ByteLevel") {
    is_byte_level_ = true;
    step.adds_prefix_space = pre_tokenizer.at("add_prefix_space").get<bool>();
    if (pre_tokenizer.value("use_regex", true)) {
      TROUPE_TRY(step.regex, Regex::compile(gpt2_pattern));
    } else if (!step.adds_prefix_space) {
      return {};
    }
  } else {
    return fail(ErrorCode::unsupported, "pre_tokenizer {}", type);
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<> PreTokenizer::split(std::string_view text,
                             const std::function<void(std::string_view)>& on_word) const {
  return text.empty() ? Result<>{} : split_from(0, text, on_word);
}

Result<> PreTokenizer::split_from(std::size_t index, std::string_view text,
                                  const std::function<void(std::string_view)>& on_word) const {
  if (index == steps_.size()) {
    on_word(text);
    return {};
  }
  const Step& step = steps_[index];
  std::string prefixed;
  if (step.adds_prefix_space && text.front() != ' ') {
    prefixed = ' ';
    prefixed += text;
    text = prefixed;
  }
  if (!step.regex) return split_from(index + 1, text, on_word);
  Result<> failure;
  TROUPE_CHECK(step.regex->split(text, [&](std::string_view part, bool is_match) {
    if ((is_match ? step.removes_matches : step.removes_between) || !failure.ok()) return;
    if (index + 1 == steps_.size()) {
      on_word(part);
    } else {
      failure = split_from(index + 1, part, on_word);
    }
  }));
  return failure;
}

}  // namespace troupe::text
