#include "actors/executor/choice_builder.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;

SequenceUpdate update_of(Ids tokens, std::optional<SequenceEnd> end = {}) {
  SequenceUpdate update;
  for (const std::int32_t id : tokens) {
    update.logprobs.push_back({-static_cast<float>(id), {}, {}, 1});
  }
  update.tokens = std::move(tokens);
  update.end = end;
  return update;
}

class Choices : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::load(test::source_path("tests/data/text") / GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_.emplace(*std::move(loaded));
  }

  Ids encode(const std::string& text) const { return *tokenizer_->encode(text, false); }

  /// Builds the choice from `ids`, `at_once` per update; passes all of them even after it has
  /// ended.
  Choice choice_of(const Ids& ids, std::size_t at_once, std::int32_t min_tokens = 0,
                   SequenceEnd end = SequenceEnd::length) const {
    AnswerForm form = form_;
    form.detokenizer.emplace(*tokenizer_, form.skip_special_tokens, prompt_);
    ChoiceBuilder builder(form, min_tokens, &*tokenizer_);
    for (std::size_t i = 0; i < ids.size(); i += at_once) {
      const std::size_t last = std::min(i + at_once, ids.size());
      builder.add(update_of(Ids(ids.begin() + static_cast<std::ptrdiff_t>(i),
                                ids.begin() + static_cast<std::ptrdiff_t>(last)),
                            last == ids.size() ? std::optional(end) : std::nullopt));
    }
    EXPECT_TRUE(builder.ended());
    return builder.finish();
  }

  std::optional<Tokenizer> tokenizer_;
  AnswerForm form_;
  Ids prompt_;
};

const std::string story =
    "Once upon a time, there was a king. The end\nof it came \xF0\x9F\xA6\x8A soon.";

TEST_P(Choices, stop_at_the_token_that_completes_a_stop_string_however_tokens_come) {
  const Ids ids = encode(story);
  const std::string whole = tokenizer_->decode(ids, true);
  for (std::size_t begin = 1; begin + 1 < whole.size(); ++begin) {
    for (const std::size_t length : {1, 3, 9}) {
      const std::string stop = whole.substr(begin, length);
      const bool cuts_a_character =
          (static_cast<unsigned char>(stop.front()) & 0xC0U) == 0x80U ||
          (begin + length < whole.size() &&
           (static_cast<unsigned char>(whole[begin + length]) & 0xC0U) == 0x80U);
      if (cuts_a_character) continue;  // no request holds such a string
      form_.stop = {stop};
      // The smallest number of tokens whose text contains the string.
      std::size_t needed = 1;
      while (tokenizer_->decode(std::span(ids).first(needed), true).find(stop) ==
             std::string::npos) {
        ++needed;
      }
      for (const std::size_t at_once : {std::size_t{1}, std::size_t{4}, ids.size()}) {
        const Choice choice = choice_of(ids, at_once);
        ASSERT_EQ(choice.finish_reason, FinishReason::stop) << stop;
        EXPECT_EQ(choice.stop_string, stop);
        EXPECT_EQ(choice.text, whole.substr(0, whole.find(stop))) << stop;
        EXPECT_EQ(choice.token_ids.size(), needed) << stop << ", " << at_once << " at once";
      }
      form_.include_stop_str_in_output = true;
      EXPECT_EQ(choice_of(ids, 1).text, whole.substr(0, whole.find(stop) + stop.size()));
      form_.include_stop_str_in_output = false;
    }
  }
}

TEST_P(Choices, go_on_when_no_stop_string_comes_and_have_the_text_of_all_tokens) {
  const Ids ids = encode(story);
  form_.stop = {"nowhere", "The endless"};
  const Choice choice = choice_of(ids, 3);
  EXPECT_EQ(choice.finish_reason, FinishReason::length);
  EXPECT_TRUE(choice.stop_string.empty());
  EXPECT_EQ(choice.text, tokenizer_->decode(ids, true));
  EXPECT_EQ(choice.token_ids, ids);
}

TEST_P(Choices, end_at_no_stop_string_before_min_tokens) {
  const Ids ids = encode("a b a b a b a b");
  form_.stop = {"b"};
  const std::size_t first = choice_of(ids, 1).token_ids.size();
  const Choice later = choice_of(ids, 1, static_cast<std::int32_t>(first));
  EXPECT_EQ(later.finish_reason, FinishReason::stop);
  EXPECT_GT(later.token_ids.size(), first);
  EXPECT_EQ(later.text.find('b'), later.text.rfind('b')) << "the first stays in the text";
  EXPECT_EQ(choice_of(ids, 1, static_cast<std::int32_t>(ids.size())).finish_reason,
            FinishReason::length);
}

TEST_P(Choices, keep_the_scores_of_the_tokens_that_they_keep) {
  const Ids ids = encode("one two three four");
  form_.stop = {"two"};
  form_.logprobs = 0;
  const Choice choice = choice_of(ids, ids.size());
  EXPECT_LT(choice.token_ids.size(), ids.size());
  EXPECT_EQ(choice.logprobs.size(), choice.token_ids.size());
  EXPECT_EQ(choice.logprob_bytes.size(), choice.token_ids.size());
}

TEST_P(Choices, follow_the_prompt_with_the_space_that_the_beginning_of_a_text_loses) {
  prompt_ = encode("once upon a");
  const Ids both = encode("once upon a the the");
  ASSERT_GT(both.size(), prompt_.size());
  const Ids answer(both.begin() + std::ssize(prompt_), both.end());
  EXPECT_EQ(choice_of(answer, 1).text, " the the");
  form_.logprobs = 0;
  EXPECT_EQ(choice_of(answer, 1).text_offsets.front(), 0);
  form_.stop = {" the"};
  const Choice stopped = choice_of(answer, 1);
  EXPECT_EQ(stopped.stop_string, " the");
  EXPECT_EQ(stopped.text, "");
}

TEST_P(Choices, complete_a_character_that_the_prompt_begins) {
  const Ids fox = encode("a\U0001F98A b");
  form_.logprobs = 0;
  for (std::size_t cut = 1; cut + 1 < fox.size(); ++cut) {
    const auto middle = fox.begin() + static_cast<std::ptrdiff_t>(cut);
    prompt_.assign(fox.begin(), middle);
    const std::string before = tokenizer_->decode(prompt_, true);
    const std::string after = before.ends_with("\uFFFD")       ? "\U0001F98A b"
                              : before.ends_with("\U0001F98A") ? " b"
                                                               : "\U0001F98A b";
    EXPECT_EQ(choice_of(Ids(middle, fox.end()), 1).text, after) << "cut at " << cut;
  }
}

TEST_P(Choices, tell_the_bytes_and_places_of_tokens_that_share_a_character) {
  const std::string text = "\u4e16 A fox \U0001F98A.";
  prompt_ = encode("Look:");
  const Ids ids = encode(text);
  form_.logprobs = 0;
  const Choice choice = choice_of(ids, 1);
  ASSERT_EQ(choice.text_offsets.size(), ids.size());
  std::string joined;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // The position is that of the character with the token's first byte.
    const auto lead = std::ranges::count_if(
        joined, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    const std::string& bytes = choice.logprob_bytes[i];
    const bool goes_on = (static_cast<unsigned char>(bytes.front()) & 0xC0U) == 0x80U;
    EXPECT_EQ(choice.text_offsets[i], goes_on ? lead - 1 : lead) << "token " << i;
    joined += bytes;
  }
  EXPECT_EQ(joined, choice.text);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Choices, ::testing::Values("fable", "spm-style"),
                         [](const auto& info) {
                           return info.param == std::string("fable") ? "byte_level"
                                                                     : "byte_fallback";
                         });

class FableChoices : public Choices {};

constexpr std::int32_t end_of_text = 4093;
constexpr std::int32_t end_of_turn = 4095;

TEST_P(FableChoices, tell_which_token_stopped_them_unless_it_is_the_models_own_end) {
  form_.own_end = end_of_turn;
  Ids ids = encode("The end");
  ids.push_back(end_of_turn);
  Choice choice = choice_of(ids, 2, 0, SequenceEnd::stop);
  EXPECT_EQ(choice.finish_reason, FinishReason::stop);
  EXPECT_FALSE(choice.stop_token.has_value());
  EXPECT_EQ(choice.text, "The end");
  EXPECT_EQ(choice.token_ids, ids);
  ids.back() = end_of_text;
  choice = choice_of(ids, 2, 0, SequenceEnd::stop);
  EXPECT_EQ(choice.stop_token, end_of_text);
  EXPECT_EQ(choice.text, "The end");
}

TEST_P(FableChoices, show_the_stop_token_where_that_and_special_tokens_are_asked_for) {
  const Ids words = encode("The end");
  Ids ids = words;
  ids.push_back(end_of_turn);
  const std::string special = tokenizer_->decode(std::span(ids).last(1), false);
  ASSERT_FALSE(special.empty());
  for (const bool with_stop_strings : {false, true}) {
    if (with_stop_strings) form_.stop = {"nowhere"};
    form_.skip_special_tokens = false;
    form_.include_stop_str_in_output = true;
    EXPECT_EQ(choice_of(ids, 1, 0, SequenceEnd::stop).text, "The end" + special);
    form_.include_stop_str_in_output = false;
    EXPECT_EQ(choice_of(ids, 1, 0, SequenceEnd::stop).text, "The end");
    form_.skip_special_tokens = true;
    form_.include_stop_str_in_output = true;
    EXPECT_EQ(choice_of(ids, 1, 0, SequenceEnd::stop).text, "The end");
  }
}

TEST_P(FableChoices, place_tokens_that_are_not_shown_where_the_text_goes_on) {
  form_.logprobs = 0;
  Ids ids = encode("The end");
  ids.insert(ids.begin(), end_of_text);
  ids.push_back(end_of_turn);
  const Choice choice = choice_of(ids, 1, 0, SequenceEnd::stop);
  EXPECT_EQ(choice.text, "The end");
  EXPECT_EQ(choice.text_offsets.front(), 0);
  EXPECT_EQ(choice.text_offsets[1], 0);
  EXPECT_EQ(choice.text_offsets.back(), 7);
}

TEST_P(FableChoices, stop_at_a_string_even_if_a_stop_token_ends_the_same_update) {
  form_.stop = {"end"};
  Ids ids = encode("The end of");
  ids.push_back(end_of_turn);
  const Choice choice = choice_of(ids, ids.size(), 0, SequenceEnd::stop);
  EXPECT_EQ(choice.stop_string, "end");
  EXPECT_EQ(choice.text, "The ");
  EXPECT_FALSE(choice.stop_token.has_value());
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, FableChoices, ::testing::Values("fable"));

TEST(ChoiceBuilder, has_tokens_without_text_where_there_is_no_tokenizer) {
  const AnswerForm form;
  ChoiceBuilder builder(form, 0, nullptr);
  builder.add(update_of({5, 3}));
  EXPECT_EQ(builder.mean_logprob(), -4.0);
  EXPECT_FALSE(builder.ended());
  builder.add(update_of({1}, SequenceEnd::length));
  EXPECT_EQ(builder.mean_logprob(), -3.0);
  const Choice choice = builder.finish();
  EXPECT_EQ(choice.token_ids, (Ids{5, 3, 1}));
  EXPECT_TRUE(choice.text.empty());
  EXPECT_TRUE(choice.logprobs.empty()) << "nobody asked for scores";
}

}  // namespace
}  // namespace troupe
