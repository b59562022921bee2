#include "actors/executor/choice_builder.hpp"

#include <gtest/gtest.h>

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
    auto loaded = Tokenizer::load(std::string(TROUPE_SOURCE_DIR "/tests/data/text/") + GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_.emplace(*std::move(loaded));
  }

  Ids encode(const std::string& text) const { return *tokenizer_->encode(text, false); }

  /// The choice made of `ids`, `at_once` in an update; it is given all of them whatever it says.
  Choice choice_of(const Ids& ids, std::size_t at_once, std::int32_t min_tokens = 0,
                   SequenceEnd end = SequenceEnd::length) const {
    ChoiceBuilder builder(form_, min_tokens, &*tokenizer_);
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
      // The least number of tokens whose text holds the string.
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
  EXPECT_EQ(choice.logprob_texts.size(), choice.token_ids.size());
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
