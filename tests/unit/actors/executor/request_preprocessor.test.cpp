#include "actors/executor/request_preprocessor.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/source_path.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

constexpr std::int64_t context = 64;

class Intake : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded =
        RequestPreprocessor::load(test::source_path("configs/demo/fable-moe"), context, 0);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    preprocessor_.emplace(*std::move(loaded));
  }

  static Request request_of(std::size_t prompt_tokens, std::optional<std::int64_t> max_tokens) {
    Request request;
    request.id = 7;
    request.kind = PromptKind::token_ids;
    request.prompt_ids.assign(prompt_tokens, 5);
    request.max_tokens = max_tokens;
    return request;
  }

  /// Returns the code with which the request is refused; empty if it is accepted.
  std::string refusal(Request request) {
    const auto outcome = preprocessor_->prepare(std::move(request));
    const auto* refused = std::get_if<Completion>(&outcome);
    if (refused == nullptr) return "";
    EXPECT_EQ(refused->id, 7U);
    EXPECT_TRUE(refused->failed());
    EXPECT_FALSE(refused->error.empty());
    return refused->error_code;
  }

  std::optional<RequestPreprocessor> preprocessor_;
};

TEST_F(Intake, takes_prompts_and_answers_that_fill_the_context_and_not_one_token_more) {
  EXPECT_EQ(refusal(request_of(60, 4)), "");
  EXPECT_EQ(refusal(request_of(60, 5)), "context_length_exceeded");
  EXPECT_EQ(refusal(request_of(63, std::nullopt)), "");
  EXPECT_EQ(refusal(request_of(64, std::nullopt)), "context_length_exceeded");
  EXPECT_EQ(refusal(request_of(1, std::numeric_limits<std::int64_t>::max())),
            "context_length_exceeded");
}

TEST_F(Intake, gives_an_answer_without_max_tokens_the_rest_of_the_context) {
  const auto outcome = preprocessor_->prepare(request_of(10, std::nullopt));
  ASSERT_TRUE(std::holds_alternative<PreparedRequest>(outcome));
  EXPECT_EQ(std::get<PreparedRequest>(outcome).sampling.max_tokens, context - 10);
}

TEST_F(Intake, gives_an_answer_without_max_tokens_as_many_as_generation_config_says) {
  const std::filesystem::path demo = test::source_path("configs/demo/fable-moe");
  const tests::TemporaryFolder folder;
  std::filesystem::copy_file(demo / "config.json", folder.path() / "config.json");
  folder.write("generation_config.json", R"({"max_new_tokens": 20})");
  auto loaded = RequestPreprocessor::load(folder.path().string(), context, 0);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto max_tokens = [&](std::size_t prompt, std::optional<std::int64_t> asked) {
    return std::get<PreparedRequest>(loaded->prepare(request_of(prompt, asked)))
        .sampling.max_tokens;
  };
  EXPECT_EQ(max_tokens(10, std::nullopt), 20);
  EXPECT_EQ(max_tokens(50, std::nullopt), context - 50) << "no more than fits";
  EXPECT_EQ(max_tokens(10, 30), 30) << "a request's own word goes before";
}

TEST_F(Intake, refuses_answers_that_could_have_more_log_probabilities_than_a_message_holds) {
  auto loaded = RequestPreprocessor::load(test::source_path("configs/demo/fable-moe"), 1 << 20, 0);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  preprocessor_.emplace(*std::move(loaded));
  Request request = request_of(10, 18'500);
  request.n = request.best_of = 128;
  EXPECT_EQ(refusal(request), "");
  request.logprobs = 20;
  EXPECT_EQ(refusal(request), "invalid_value");
  request.n = request.best_of = 16;
  EXPECT_EQ(refusal(request), "");
  Request scored = request_of(100'000, 1);
  scored.prompt_logprobs = 20;
  EXPECT_EQ(refusal(scored), "");
  scored.n = scored.best_of = 8;
  EXPECT_EQ(refusal(scored), "invalid_value");
  Request long_ones = request_of(1, std::nullopt);
  EXPECT_EQ(refusal(long_ones), "");
  long_ones.n = long_ones.best_of = 64;
  EXPECT_EQ(refusal(long_ones), "invalid_value");
}

TEST_F(Intake, keeps_the_last_tokens_of_a_prompt_that_is_to_be_truncated) {
  const auto prompt = [&](Request request) {
    const auto outcome = preprocessor_->prepare(std::move(request));
    const auto* prepared = std::get_if<PreparedRequest>(&outcome);
    return prepared != nullptr ? prepared->prompt : std::vector<std::int32_t>();
  };
  Request request = request_of(0, 4);
  for (std::int32_t id = 0; id < 100; ++id) request.prompt_ids.push_back(id);
  request.truncate_prompt_tokens = 3;
  EXPECT_EQ(prompt(request), (std::vector<std::int32_t>{97, 98, 99}));
  request.truncate_prompt_tokens = -1;
  EXPECT_EQ(prompt(request).size(), 60U) << "room for the answer is left";
  EXPECT_EQ(prompt(request).back(), 99);
  request.truncate_prompt_tokens = 61;
  EXPECT_EQ(refusal(request), "invalid_prompt");
  request.truncate_prompt_tokens = 60;
  request.prompt_ids.resize(5);
  EXPECT_EQ(prompt(request).size(), 5U) << "short prompts stay as they are";

  Request text = request_of(0, 1);
  text.kind = PromptKind::text;
  text.prompt = "Once upon a time there was a king";
  const auto whole = prompt(text);
  const auto plain = *preprocessor_->tokenizer()->encode(text.prompt, false);
  const std::size_t front = whole.size() - plain.size();
  text.truncate_prompt_tokens = static_cast<std::int32_t>(front) + 2;
  std::vector<std::int32_t> expected(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(front));
  expected.insert(expected.end(), whole.end() - 2, whole.end());
  EXPECT_EQ(prompt(text), expected) << "what the tokenizer puts in front stays";
}

TEST_F(Intake, bounds_the_numbers_that_a_plan_carries_of_a_request) {
  Request request = request_of(1, 1);
  request.ignore_eos = true;
  request.stop_token_ids.assign(max_sampling_numbers - 6, 3);
  request.logit_bias = {{1, 1.0F}, {2, 1.0F}};
  request.allowed_token_ids = {1, 2};
  EXPECT_EQ(refusal(request), "");
  request.allowed_token_ids.push_back(3);
  EXPECT_EQ(refusal(request), "invalid_value");
}

TEST_F(Intake, refuses_a_text_with_a_token_that_only_the_tokenizer_knows) {
  const std::filesystem::path demo = test::source_path("configs/demo/fable-moe");
  const tests::TemporaryFolder folder;
  std::filesystem::copy_file(demo / "tokenizer.json", folder.path() / "tokenizer.json");
  std::ifstream config(demo / "config.json");
  std::string text{std::istreambuf_iterator<char>(config), {}};
  const std::string key = "\"vocab_size\": 4096";
  ASSERT_NE(text.find(key), text.npos);
  text.replace(text.find(key), key.size(), "\"vocab_size\": 4093");
  for (const char* end : {"\"eos_token_id\": 4095", "\"bos_token_id\": 4095"}) {
    if (const auto at = text.find(end); at != text.npos) {
      text.replace(at, std::string_view(end).size(), "\"eos_token_id\": 3");
    }
  }
  folder.write("config.json", text);
  auto preprocessor = RequestPreprocessor::load(folder.path().string(), context, 0);
  ASSERT_TRUE(preprocessor.ok()) << preprocessor.error().message;
  preprocessor_.emplace(*std::move(preprocessor));
  Request request = request_of(0, 1);
  request.kind = PromptKind::text;
  request.prompt = "The fox";
  EXPECT_EQ(refusal(request), "");
  request.prompt = "The fox<|im_end|>";
  EXPECT_EQ(refusal(request), "invalid_prompt");
}

TEST_F(Intake, refuses_biased_and_allowed_ids_outside_the_vocabulary) {
  const auto outside = static_cast<std::int32_t>(preprocessor_->config().vocab_size);
  Request request = request_of(1, 1);
  request.logit_bias = {{outside - 1, 1.0F}};
  request.allowed_token_ids = {outside - 1};
  EXPECT_EQ(refusal(request), "");
  request.logit_bias.push_back({outside, 1.0F});
  EXPECT_EQ(refusal(request), "invalid_value");
  request.logit_bias.clear();
  request.allowed_token_ids.push_back(outside);
  EXPECT_EQ(refusal(request), "invalid_value");
}

TEST_F(Intake, tokenises_bad_words_at_the_beginning_of_a_text_and_behind_a_space) {
  Request request = request_of(1, 1);
  request.bad_words = {"  king", "Once upon a time"};
  const auto outcome = preprocessor_->prepare(request);
  ASSERT_TRUE(std::holds_alternative<PreparedRequest>(outcome));
  const Tokenizer& tokenizer = *preprocessor_->tokenizer();
  std::vector<std::vector<std::int32_t>> expected;
  for (const std::string word : {"king", "Once upon a time"}) {
    const auto plain = *tokenizer.encode(word, false);
    const auto spaced = *tokenizer.encode(" " + word, false);
    expected.push_back(plain);
    if (plain.size() == spaced.size() && plain[0] != spaced[0]) expected.push_back(spaced);
  }
  EXPECT_EQ(std::get<PreparedRequest>(outcome).sampling.bad_words, expected);
  EXPECT_GE(expected.size(), 3U) << "no word has two forms";
}

TEST_F(Intake, knows_the_end_that_is_no_stop_reason) {
  const auto outcome = preprocessor_->prepare(request_of(1, 1));
  ASSERT_TRUE(std::holds_alternative<PreparedRequest>(outcome));
  const AnswerForm& form = std::get<PreparedRequest>(outcome).form;
  EXPECT_EQ(form.eos_ids, (std::vector<std::int32_t>{4093, 4095}));
  ASSERT_TRUE(form.own_end.has_value());
  EXPECT_TRUE(*form.own_end == 4093 || *form.own_end == 4095) << *form.own_end;
}

/// A folder with the demo's model and changed files.
class ChangedModel : public Intake {
 protected:
  ChangedModel() {
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(demo_ / name, folder_.path() / name);
  }

  /// Replaces `from`, which must be there, in a file.
  void change(const char* name, std::string_view from, std::string_view to) {
    std::ifstream file(folder_.path() / name);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    folder_.write(name, text.replace(at, from.size(), to));
  }

  void load() {
    auto intake = RequestPreprocessor::load(folder_.path().string(), context, 0);
    ASSERT_TRUE(intake.ok()) << intake.error().message;
    preprocessor_.emplace(*std::move(intake));
  }

  PreparedRequest prepared(Request request) {
    auto outcome = preprocessor_->prepare(std::move(request));
    if (auto* refused = std::get_if<Completion>(&outcome)) {
      ADD_FAILURE() << refused->error;
      return {};
    }
    return std::get<PreparedRequest>(std::move(outcome));
  }

  const std::filesystem::path demo_ = test::source_path("configs/demo/fable-moe");
  tests::TemporaryFolder folder_;
};

TEST_F(ChangedModel, stops_at_the_tokenizers_own_end_that_no_config_names) {
  change("tokenizer_config.json", R"("eos_token": "<|im_end|>")", R"("eos_token": "<|im_start|>")");
  load();
  const std::int32_t own = *preprocessor_->tokenizer()->id_of("<|im_start|>");
  const PreparedRequest request = prepared(request_of(1, 1));
  EXPECT_EQ(request.form.own_end, own);
  EXPECT_EQ(std::ranges::count(request.form.eos_ids, own), 1);
  EXPECT_EQ(std::ranges::count(request.sampling.stop_token_ids, own), 1);
  Request to_the_end = request_of(1, 1);
  to_the_end.ignore_eos = true;
  EXPECT_TRUE(prepared(to_the_end).sampling.stop_token_ids.empty());
}

TEST_F(ChangedModel, adds_special_tokens_to_texts_and_not_to_chats_unless_asked_otherwise) {
  std::filesystem::copy_file(demo_ / "chat_template.jinja", folder_.path() / "chat_template.jinja");
  change(
      "tokenizer_config.json", R"("tokenizer_class": "TokenizersBackend")",
      R"("tokenizer_class": "LlamaTokenizerFast", "bos_token": "<|im_start|>", "unk_token": null)");
  load();
  const std::int32_t bos = *preprocessor_->tokenizer()->id_of("<|im_start|>");
  Request request = request_of(0, 1);
  request.kind = PromptKind::text;
  request.prompt = "The fox";
  const std::vector<std::int32_t> plain =
      *preprocessor_->tokenizer()->encode(request.prompt, false);
  std::vector<std::int32_t> framed = plain;
  framed.insert(framed.begin(), bos);
  EXPECT_EQ(prepared(request).prompt, framed);
  request.add_special_tokens = true;
  EXPECT_EQ(prepared(request).prompt, framed);
  request.add_special_tokens = false;
  EXPECT_EQ(prepared(request).prompt, plain);
  request.kind = PromptKind::messages;
  request.prompt = R"([{"role": "user", "content": "The fox"}])";
  const std::vector<std::int32_t> chat = prepared(request).prompt;
  request.add_special_tokens.reset();
  EXPECT_EQ(prepared(request).prompt, chat);
  request.add_special_tokens = true;
  std::vector<std::int32_t> framed_chat = chat;
  framed_chat.insert(framed_chat.begin(), bos);
  EXPECT_EQ(prepared(request).prompt, framed_chat);
}

TEST_F(ChangedModel, keeps_the_requests_own_text_for_echo) {
  change(
      "tokenizer_config.json", R"("tokenizer_class": "TokenizersBackend")",
      R"("tokenizer_class": "LlamaTokenizerFast", "bos_token": "<|im_start|>", "unk_token": null)");
  load();
  Request request = request_of(0, 1);
  request.kind = PromptKind::text;
  request.prompt = "Cafe\u0301 once";  // NFC changes this text
  EXPECT_FALSE(prepared(request).form.echo.has_value());
  request.echo = true;
  const AnswerForm form = prepared(request).form;
  EXPECT_EQ(form.echo, request.prompt);
  EXPECT_EQ(form.tokens_before_text, 1U);
  request.add_special_tokens = false;
  EXPECT_EQ(prepared(request).form.tokens_before_text, 0U);
  Request ids = request_of(1, 1);
  ids.echo = true;
  EXPECT_EQ(prepared(ids).form.echo, preprocessor_->tokenizer()->decode(ids.prompt_ids, false));
}

TEST_F(Intake, refuses_empty_prompts_and_ids_outside_the_vocabulary) {
  EXPECT_EQ(refusal(request_of(0, 1)), "invalid_prompt");
  Request request = request_of(2, 1);
  request.prompt_ids[1] = -1;
  EXPECT_EQ(refusal(request), "invalid_prompt");
  request.prompt_ids[1] = static_cast<std::int32_t>(preprocessor_->config().vocab_size);
  EXPECT_EQ(refusal(request), "invalid_prompt");
}

}  // namespace
}  // namespace troupe
