#include "models/text/pre_tokenizer.hpp"

#include <cctype>

#include <nlohmann/json.hpp>

#include "models/text/json_file.hpp"
#include "models/text/string_replace.hpp"

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
  } else if (type == "Digits") {
    const bool individual = pre_tokenizer.value("individual_digits", false);
    TROUPE_TRY(step.regex, Regex::compile(individual ? R"(\p{N})" : R"(\p{N}+)"));
  } else if (type == "Metaspace") {
    TROUPE_TRY(step, read_metaspace(pre_tokenizer));
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

Result<PreTokenizer::Step> PreTokenizer::read_metaspace(const nlohmann::json& metaspace) {
  Step step;
  step.space_sign = metaspace.at("replacement").get<std::string>();
  if (step.space_sign.empty())
    return fail(ErrorCode::corrupt_data, "pre_tokenizer Metaspace with an empty replacement");
  // Files from before prepend_scheme say add_prefix_space.
  const auto scheme = metaspace.value(
      "prepend_scheme", metaspace.value("add_prefix_space", true) ? "always" : "never");
  step.adds_sign_always = scheme == "always";
  step.adds_sign_first = scheme == "first";
  if (!step.adds_sign_always && !step.adds_sign_first && scheme != "never")
    return fail(ErrorCode::unsupported, "pre_tokenizer Metaspace with prepend_scheme {}", scheme);
  if (metaspace.value("split", true)) {
    // A word is a sign and all up to the next one.
    const std::string sign = escape_literal(step.space_sign);
    TROUPE_TRY(step.regex, Regex::compile(fmt::format("(?s){}?(?:(?!{}).)+|{}", sign, sign, sign)));
  }
  return step;
}

Result<> PreTokenizer::split(std::string_view text, bool is_first,
                             const std::function<void(std::string_view)>& on_word) const {
  return text.empty() ? Result<>{} : split_from(0, text, is_first, on_word);
}

Result<> PreTokenizer::split_from(std::size_t index, std::string_view text, bool is_first,
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
  if (!step.space_sign.empty()) {
    prefixed = replace_all(text, " ", step.space_sign);
    const bool adds_sign = step.adds_sign_always || (step.adds_sign_first && is_first);
    if (adds_sign && !prefixed.starts_with(step.space_sign)) prefixed.insert(0, step.space_sign);
    text = prefixed;
  }
  if (!step.regex) return split_from(index + 1, text, is_first, on_word);
  Result<> failure;
  TROUPE_CHECK(step.regex->split(text, [&](std::string_view part, bool is_match) {
    if ((is_match ? step.removes_matches : step.removes_between) || !failure.ok()) return;
    if (index + 1 == steps_.size()) {
      on_word(part);
    } else {
      failure = split_from(index + 1, part, is_first && part.data() == text.data(), on_word);
    }
  }));
  return failure;
}

}  // namespace troupe::text
