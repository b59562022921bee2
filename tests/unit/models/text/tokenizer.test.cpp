#include "models/text/tokenizer.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/pre_tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/time_scale.hpp"
#include "tests/unit/models/text/text_data.hpp"

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;
using tests::read_rows;
using tests::text_data;

Tokenizer load(const std::string& folder) {
  auto tokenizer = Tokenizer::load(text_data(folder));
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
  return std::move(tokenizer).value();
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool add_special_tokens = false) {
  auto ids = tokenizer.encode(text, add_special_tokens);
  if (!ids.ok()) throw std::runtime_error(ids.error().message);
  return std::move(ids).value();
}

TEST(Tokenizer, encodes_and_decodes_as_the_reference_does) {
  const Tokenizer tokenizer = load("fable");
  for (const auto& row : read_rows(text_data("tokens.jsonl"))) {
    const Ids expected = row["ids"];
    EXPECT_EQ(encode(tokenizer, row["text"].get<std::string>()), expected) << row["text"];
    EXPECT_EQ(tokenizer.decode(expected, false), row["decoded"].get<std::string>()) << row["text"];
  }
}

TEST(Tokenizer, decodes_arbitrary_ids_as_the_reference_does) {
  const Tokenizer tokenizer = load("fable");
  for (const auto& row : read_rows(text_data("decode.jsonl"))) {
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer.decode(ids, false), row["decoded"].get<std::string>()) << row["ids"];
    EXPECT_EQ(tokenizer.decode(ids, true), row["decoded_skip_special"].get<std::string>())
        << row["ids"];
  }
}

class TokenizerStyle : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerStyle, encodes_and_decodes_as_the_reference_does) {
  const Tokenizer tokenizer = load(GetParam());
  for (const auto& row : read_rows(text_data(GetParam()) / "tokens.jsonl")) {
    const auto text = row["text"].get<std::string>();
    const Ids ids = row["ids"], with_special = row["ids_with_special"];
    EXPECT_EQ(encode(tokenizer, text), ids) << row["text"];
    EXPECT_EQ(encode(tokenizer, text, true), with_special) << row["text"];
    EXPECT_EQ(tokenizer.decode(ids, false), row["decoded"].get<std::string>()) << row["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerStyle, testing::Values("llama3-style", "spm-style"),
                         [](const auto& info) { return std::string(info.param, 3); });

TEST(Tokenizer, knows_its_special_tokens_and_its_size) {
  const Tokenizer tokenizer = load("fable");
  EXPECT_EQ(tokenizer.vocab_size(), 4096);
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), 4095);
  EXPECT_EQ(tokenizer.id_of("!"), 0);
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(4093));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(4096));
}

TEST(Tokenizer, decodes_ids_outside_the_vocabulary_to_nothing) {
  const Tokenizer tokenizer = load("fable");
  EXPECT_EQ(tokenizer.decode(Ids{-1, 0, 4096, 2147483647}, false), "!");
}

TEST(Tokenizer, refuses_text_that_is_not_utf8) {
  const Tokenizer tokenizer = load("fable");
  for (const char* text : {"\xff\xfe", "a\xc3", "\xed\xa0\x80", "\xc0\x80"}) {
    const auto ids = tokenizer.encode(text, false);
    ASSERT_FALSE(ids.ok()) << testing::PrintToString(std::string(text));
    EXPECT_EQ(ids.error().code, ErrorCode::invalid_argument);
  }
}

/// The error of loading a tokenizer.json with one token and these parts.
Error load_error(const std::string& parts) {
  const std::string path = testing::TempDir() + "/tokenizer_of_one_token.json";
  std::ofstream(path) << R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},)"
                      << R"("decoder": {"type": "ByteLevel"})" << parts << "}";
  const auto tokenizer = Tokenizer::load(path);
  std::filesystem::remove(path);
  return tokenizer.ok() ? Error{ErrorCode::internal, "it was loaded"} : tokenizer.error();
}

TEST(Tokenizer, refuses_files_that_would_take_all_memory_or_the_stack) {
  EXPECT_EQ(load_error(R"(, "added_tokens": [{"id": 4194304, "content": "x"}])").code,
            ErrorCode::corrupt_data);
  const std::tuple<const char*, const char*> parts[] = {{"normalizer", "normalizers"},
                                                        {"pre_tokenizer", "pretokenizers"},
                                                        {"post_processor", "processors"}};
  for (const auto& [part, list] : parts) {
    std::string nest = "null";
    for (int level = 0; level < 1000; ++level) {
      nest = fmt::format(R"({{"type": "Sequence", "{}": [{}]}})", list, nest);
    }
    const Error error = load_error(fmt::format(R"(, "{}": {})", part, nest));
    EXPECT_EQ(error.code, ErrorCode::corrupt_data) << part << ": " << error.message;
    EXPECT_NE(error.message.find("nested deeper"), std::string::npos) << error.message;
  }
}

TEST(Tokenizer, refuses_files_nested_400000_deep_in_tokenizer_json_and_tokenizer_config) {
  const std::string nest = std::string(400'000, '[') + std::string(400'000, ']');
  EXPECT_EQ(load_error(R"(, "normalizer": )" + nest).code, ErrorCode::corrupt_data);
  const tests::TemporaryFolder folder;
  std::filesystem::copy_file(text_data("fable") / "tokenizer.json",
                             folder.path() / "tokenizer.json");
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": )" + nest + "}}");
  const auto tokenizer = Tokenizer::load(folder.path());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::corrupt_data);
}

TEST(Tokenizer, refuses_components_that_would_multiply_texts) {
  const std::string long_text(65, 'x');
  EXPECT_EQ(
      load_error(R"(, "normalizer": {"type": "Prepend", "prepend": ")" + long_text + "\"}").code,
      ErrorCode::corrupt_data);
  std::string steps = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  for (int i = 0; i < 4; ++i) steps += ", " + steps;
  EXPECT_EQ(
      load_error(R"(, "normalizer": {"type": "Sequence", "normalizers": [)" + steps +
                 R"(]}, "added_tokens": [{"id": 1, "content": "aaaaaaa", "normalized": true}])")
          .code,
      ErrorCode::resource_exhausted);
  for (int i = 0; i < 3; ++i) steps += ", " + steps;
  EXPECT_EQ(
      load_error(R"(, "normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}").code,
      ErrorCode::corrupt_data);
  std::string many = R"({"SpecialToken": {"id": "a", "type_id": 0}})";
  for (int i = 0; i < 10; ++i) many += ", " + many;
  EXPECT_EQ(load_error(R"(, "post_processor": {"type": "TemplateProcessing", "single": [)" + many +
                       R"(], "special_tokens": {"a": {"ids": [0, 0, 0, 0]}}})")
                .code,
            ErrorCode::corrupt_data);
}

/// The words of `text`, each followed by a bar.
std::string words_of(const char* pre_tokenizer, std::string_view text, bool is_first = true) {
  const auto parsed = text::PreTokenizer::parse(nlohmann::json::parse(pre_tokenizer));
  if (!parsed.ok()) return parsed.error().message;
  std::string words;
  const auto done =
      parsed->split(text, is_first, [&](std::string_view word) { words.append(word) += '|'; });
  return done.ok() ? words : done.error().message;
}

// Expected results follow the definitions of the tokenizers library.

TEST(PreTokenizer, cuts_digits_one_by_one_or_in_runs) {
  EXPECT_EQ(words_of(R"({"type": "Digits", "individual_digits": true})", "a12 \u00bd3b"),
            "a|1|2| |\u00bd|3|b|");
  EXPECT_EQ(words_of(R"({"type": "Digits"})", "a12 \u00bd3b"), "a|12| |\u00bd3|b|");
}

TEST(PreTokenizer, puts_a_sign_in_place_of_spaces_and_cuts_before_it) {
  const char* always = R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"})";
  EXPECT_EQ(words_of(always, "Hi  you\nall"), "_Hi|_|_you\nall|");
  EXPECT_EQ(words_of(always, " Hi "), "_Hi|_|");
  const char* first = R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
                          "split": false})";
  EXPECT_EQ(words_of(first, "Hi you"), "_Hi_you|");
  EXPECT_EQ(words_of(first, "Hi you", false), "Hi_you|");
  EXPECT_EQ(
      words_of(R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})", "a b"),
      "a|_b|");
  EXPECT_EQ(words_of(R"({"type": "Metaspace", "replacement": "_"})", "a b"), "_a|_b|");
}

TEST(PreTokenizer, joins_matches_as_each_behavior_says) {
  const auto words = [](std::string_view behavior, bool invert) {
    return words_of(fmt::format(R"({{"type": "Split", "pattern": {{"String": "-"}},
                                     "behavior": "{}", "invert": {}}})",
                                behavior, invert)
                        .c_str(),
                    "the-final--countdown");
  };
  EXPECT_EQ(words("Removed", false), "the|final|countdown|");
  EXPECT_EQ(words("Isolated", false), "the|-|final|-|-|countdown|");
  EXPECT_EQ(words("MergedWithPrevious", false), "the-|final-|-|countdown|");
  EXPECT_EQ(words("MergedWithNext", false), "the|-final|-|-countdown|");
  EXPECT_EQ(words("Contiguous", false), "the|-|final|--|countdown|");
  EXPECT_EQ(words("Removed", true), "-|-|-|");
  EXPECT_EQ(words("MergedWithPrevious", true), "the|-final|-|-countdown|");
}

TEST(PreTokenizer, knows_which_of_its_words_is_the_first) {
  EXPECT_EQ(words_of(R"({"type": "Sequence", "pretokenizers": [
                {"type": "Digits"},
                {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})",
                     "a1b c"),
            "_a|1|b|_c|");
}

TEST(Tokenizer, refuses_a_regex_that_cuts_characters_in_pieces) {
  const Error error = load_error(
      R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\C"}, "behavior": "Isolated", "invert": false})");
  EXPECT_EQ(error.code, ErrorCode::unsupported) << error.message;
}

TEST(Tokenizer, gives_up_a_regex_that_tries_exponentially_many_ways) {
  const auto parsed = text::PreTokenizer::parse(nlohmann::json::parse(
      R"({"type": "Split", "pattern": {"Regex": "(a+)+[bc]"}, "behavior": "Isolated", "invert": false})"));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto done = parsed->split(std::string(300, 'a'), true, [](std::string_view) {});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::resource_exhausted);
}

TEST(Tokenizer, encodes_a_word_of_a_megabyte_in_less_than_a_second) {
  for (const char* folder : {"fable", "spm-style"}) {
    const Tokenizer tokenizer = load(folder);
    const std::string word(1'000'000, 'a');
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = encode(tokenizer, word);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(tokenizer.decode(ids, false), word) << folder;
    EXPECT_LT(seconds.count(), 1.0 * test::time_scale) << folder;
  }
}

TEST(Tokenizer, encodes_long_runs_of_spaces_and_marks_in_less_than_a_second) {
  const Tokenizer tokenizer = load("fable");
  std::string marks = "e";  // two marks whose order NFC changes
  for (int i = 0; i < 100'000; ++i) marks += "\u0301\u0323";
  for (const std::string& text : {std::string(1'000'000, ' '), marks}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(encode(tokenizer, text).empty());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 1.0) << text.substr(0, 8);
  }
}

}  // namespace
}  // namespace troupe
