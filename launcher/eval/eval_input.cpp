#include "launcher/eval/eval_input.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "launcher/batch/input/read_text.hpp"

namespace troupe {
namespace {

/// The most bytes of an input; its tokens are held in memory.
constexpr std::size_t max_bytes = std::size_t{1} << 30;

Result<std::string> read_whole(const std::string& path, std::string_view role) {
  TROUPE_TRY(FileText read, read_text(path, role, max_bytes));
  if (read.is_whole) return std::move(read.text);
  return fail(ErrorCode::invalid_argument, "{} {} has more than {} bytes", role, path, max_bytes);
}

Result<const Tokenizer*> tokenizer_of(const JobPlan& plan) {
  const Tokenizer* const tokenizer = plan.preprocessor->tokenizer();
  if (tokenizer != nullptr) return tokenizer;
  return fail(ErrorCode::not_found, "{}: no tokenizer.json, without which no text can be judged",
              plan.config.model.path);
}

/// Fills in the tokens and windows of the input's text.
Result<void> encode_text(const EvalOptions& options, const JobPlan& plan,
                         const Tokenizer& tokenizer, EvalInput& input) {
  auto tokens = tokenizer.encode(input.text, false);
  if (!tokens.ok()) {
    return fail(tokens.error().code, "text {}: {}", options.text, tokens.error().message);
  }
  input.tokens = *std::move(tokens);
  input.windows = cut_windows(input.tokens.size(), options.windows);
  if (input.windows.empty()) {
    return fail(ErrorCode::invalid_argument,
                "text {} has {} tokens: at least 2 are needed, the first of which is not scored",
                options.text, input.tokens.size());
  }
  for (const Window& window : input.windows) input.scored_tokens += window.scored();
  const auto length = static_cast<std::int64_t>(input.windows.front().length);
  if (length <= plan.engine.max_model_len) return {};
  return fail(ErrorCode::invalid_argument,
              "windows of {} tokens are longer than the context of {}: give a smaller --length",
              length, plan.engine.max_model_len);
}

Result<std::vector<std::vector<Continuation>>> encode_tasks(const EvalOptions& options,
                                                            const std::vector<ChoiceTask>& tasks,
                                                            const JobPlan& plan,
                                                            const Tokenizer& tokenizer) {
  std::vector<std::vector<Continuation>> encoded(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    for (const std::string& choice : tasks[i].choices) {
      auto continuation =
          encode_continuation(tokenizer, tasks[i].context, options.delimiter + choice);
      if (!continuation.ok()) {
        return fail(continuation.error().code, "{}: task {}: {}", options.tasks, i + 1,
                    continuation.error().message);
      }
      if (std::ssize(continuation->ids) > plan.engine.max_model_len) {
        return fail(ErrorCode::invalid_argument,
                    "{}: task {} has {} tokens, more than the context of {}", options.tasks, i + 1,
                    continuation->ids.size(), plan.engine.max_model_len);
      }
      encoded[i].push_back(*std::move(continuation));
    }
  }
  return encoded;
}

/// Fills in what a model makes of the input's text and tasks.
Result<void> encode(const EvalOptions& options, const JobPlan& plan, EvalInput& input) {
  TROUPE_TRY(const Tokenizer* tokenizer, tokenizer_of(plan));
  if (!options.text.empty()) TROUPE_CHECK(encode_text(options, plan, *tokenizer, input));
  TROUPE_TRY(input.choices, encode_tasks(options, input.tasks, plan, *tokenizer));
  return {};
}

bool are_same(const std::vector<std::vector<Continuation>>& some,
              const std::vector<std::vector<Continuation>>& others) {
  return std::ranges::equal(some, others, [](const auto& a, const auto& b) {
    return std::ranges::equal(a, b, [](const Continuation& one, const Continuation& other) {
      return one.ids == other.ids && one.begin == other.begin;
    });
  });
}

}  // namespace

std::size_t EvalInput::requests() const {
  std::size_t count = windows.size();
  for (const auto& of_task : choices) count += of_task.size();
  return count;
}

Result<EvalInput> read_eval_input(const EvalOptions& options, const JobPlan& plan) {
  EvalInput input;
  if (!options.text.empty()) {
    TROUPE_TRY(input.text, read_whole(options.text, "text"));
  }
  if (!options.tasks.empty()) {
    TROUPE_TRY(const std::string text, read_whole(options.tasks, "tasks"));
    TROUPE_TRY(input.tasks, read_tasks(text, options.tasks));
  }
  TROUPE_CHECK(encode(options, plan, input));
  return input;
}

Result<void> check_same_tokens(const EvalOptions& options, const EvalInput& input,
                               const JobPlan& first, const JobPlan& second) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::invalid_argument,
                "{} and {} cannot be compared: {}; only models of one vocabulary can",
                first.config.model.path, second.config.model.path, why);
  };
  if (first.model.vocab_size != second.model.vocab_size) {
    return refuse(fmt::format("their vocabularies have {} and {} tokens", first.model.vocab_size,
                              second.model.vocab_size));
  }
  EvalInput other;
  other.text = input.text;
  other.tasks = input.tasks;
  TROUPE_CHECK(encode(options, second, other));
  if (other.tokens != input.tokens) return refuse("they read the text as other tokens");
  if (!are_same(other.choices, input.choices)) return refuse("they read the tasks as other tokens");
  return {};
}

}  // namespace troupe
