#include "models/text/pre_tokenizer.hpp"

#include <cctype>

#include <nlohmann/json.hpp>

#include "models/text/byte_alphabet.hpp"
#include "models/text/string_replace.hpp"
#include "models/text/text_limits.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::text {
namespace {

constexpr std::string_view gpt2_pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::string_view punctuation_pattern = R"([!-/:-@\[-`{-~]|\p{P})";

std::string escape_literal(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const nlohmann::json& pre_tokenizer,
                                         std::optional<bool> add_prefix_space) {
  PreTokenizer out;
  const bool is_byte_level_alone =
      pre_tokenizer.is_object() && pre_tokenizer.value("type", nlohmann::json()) == "ByteLevel";
  if (add_prefix_space && is_byte_level_alone) {
    nlohmann::json changed = pre_tokenizer;
    changed["add_prefix_space"] = *add_prefix_space;
    TROUPE_CHECK(out.add(changed));
  } else {
    TROUPE_CHECK(out.add(pre_tokenizer));
  }
  return out;
}

Result<> PreTokenizer::add(const nlohmann::json& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return {};
  const auto type = pre_tokenizer.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& step : pre_tokenizer.at("pretokenizers")) TROUPE_CHECK(add(step));
    return {};
  }
  if (is_byte_level_ && (type == "ByteLevel" || type == "Metaspace")) {
    return fail(ErrorCode::unsupported, "pre_tokenizer {} after ByteLevel", type);
  }
  Step step;
  if (type == "Punctuation") {
    step.behavior = Behavior::isolated;
    TROUPE_TRY(step.regex, Regex::compile(punctuation_pattern));
    if (pre_tokenizer.contains("behavior")) {
      TROUPE_TRY(step.behavior, read_behavior(pre_tokenizer.at("behavior").get<std::string>()));
    }
  } else if (type == "Split") {
    TROUPE_TRY(step, read_split(pre_tokenizer));
  } else if (type == "Digits") {
    const bool individual = pre_tokenizer.value("individual_digits", false);
    TROUPE_TRY(step.regex, Regex::compile(individual ? R"(\p{N})" : R"(\p{N}+)"));
  } else if (type == "Metaspace") {
    TROUPE_TRY(step, read_metaspace(pre_tokenizer));
  } else if (type == "ByteLevel") {
    is_byte_level_ = true;
    step.adds_prefix_space = pre_tokenizer.at("add_prefix_space").get<bool>();
    spelled_from_ = steps_.size();
    if (pre_tokenizer.value("use_regex", true)) {
      TROUPE_TRY(step.regex, Regex::compile(gpt2_pattern));
    } else if (!step.adds_prefix_space) {
      return {};
    }
    ++spelled_from_;
  } else {
    return fail(ErrorCode::unsupported, "pre_tokenizer {}", type);
  }
  steps_.push_back(std::move(step));
  return check_steps(steps_.size(), "pre_tokenizer");
}

Result<PreTokenizer::Step> PreTokenizer::read_split(const nlohmann::json& split) {
  Step step;
  const auto& pattern = split.at("pattern");
  const auto regex = pattern.contains("Regex")
                         ? pattern.at("Regex").get<std::string>()
                         : escape_literal(pattern.at("String").get<std::string>());
  TROUPE_TRY(step.regex, Regex::compile(regex));
  step.inverted = split.at("invert").get<bool>();
  TROUPE_TRY(step.behavior, read_behavior(split.at("behavior").get<std::string>()));
  return step;
}

Result<PreTokenizer::Behavior> PreTokenizer::read_behavior(const std::string& name) {
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  return fail(ErrorCode::unsupported, "pre_tokenizer with behavior {}", name);
}

Result<PreTokenizer::Step> PreTokenizer::read_metaspace(const nlohmann::json& metaspace) {
  Step step;
  step.space_sign = metaspace.at("replacement").get<std::string>();
  if (count_code_points(step.space_sign) != 1)
    return fail(ErrorCode::corrupt_data,
                "pre_tokenizer Metaspace with a replacement that is not one character");
  // Files older than prepend_scheme have add_prefix_space.
  const auto scheme = metaspace.value(
      "prepend_scheme", metaspace.value("add_prefix_space", true) ? "always" : "never");
  step.adds_sign_always = scheme == "always";
  step.adds_sign_first = scheme == "first";
  if (!step.adds_sign_always && !step.adds_sign_first && scheme != "never")
    return fail(ErrorCode::unsupported, "pre_tokenizer Metaspace with prepend_scheme {}", scheme);
  if (metaspace.value("split", true)) {
    // A word is a sign and everything up to the next one.
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
  const bool follows_bytes = is_byte_level_ && index == spelled_from_ && index < steps_.size();
  if (!follows_bytes) return apply(index, text, is_first, on_word);
  // Steps after ByteLevel see the characters that stand for the bytes.
  std::string spelled;
  for (const char byte : text) {
    append_code_point(byte_to_character(static_cast<unsigned char>(byte)), spelled);
  }
  return apply(index, spelled, is_first, [&](std::string_view word) {
    if (const auto bytes = bytes_of_token(word)) on_word(*bytes);
  });
}

Result<> PreTokenizer::apply(std::size_t index, std::string_view text, bool is_first,
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
  TROUPE_CHECK(cut(step, text, [&](std::string_view part) {
    if (!failure.ok()) return;
    if (index + 1 == steps_.size()) {
      on_word(part);
    } else {
      failure = split_from(index + 1, part, is_first && part.data() == text.data(), on_word);
    }
  }));
  return failure;
}

Result<> PreTokenizer::cut(const Step& step, std::string_view text,
                           const std::function<void(std::string_view)>& on_part) {
  // Adjacent parts wait in `joined` until the part after them is known.
  std::string_view joined;
  bool ends_in_match = false;
  const auto begin_with = [&](std::string_view part) {
    if (!joined.empty()) on_part(joined);
    joined = part;
  };
  const auto join = [&](std::string_view part) {
    joined = joined.empty() ? part : std::string_view(joined.data(), joined.size() + part.size());
  };
  TROUPE_CHECK(step.regex->split(text, [&](std::string_view part, bool is_match) {
    if (step.inverted) is_match = !is_match;
    switch (step.behavior) {
      case Behavior::removed:
        if (!is_match) on_part(part);
        break;
      case Behavior::isolated:
        on_part(part);
        break;
      case Behavior::merged_with_previous:
        is_match && !ends_in_match ? join(part) : begin_with(part);
        break;
      case Behavior::merged_with_next:
        !is_match&& ends_in_match ? join(part) : begin_with(part);
        break;
      case Behavior::contiguous:
        is_match == ends_in_match ? join(part) : begin_with(part);
    }
    ends_in_match = is_match;
  }));
  begin_with({});
  return {};
}

}  // namespace troupe::text
