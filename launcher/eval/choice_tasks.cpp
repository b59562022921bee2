#include "launcher/eval/choice_tasks.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/json/json_file.hpp"

namespace troupe {
namespace {

Result<ChoiceTask> read_task(std::string_view line, const std::string& where) {
  TROUPE_TRY(const nlohmann::json object, parse_json_object(line, where));
  const auto wrong = [&](std::string_view key, std::string_view expected) {
    return fail(ErrorCode::invalid_argument, "{}: {}: expected {}", where, key, expected);
  };
  ChoiceTask task;
  const auto context = object.find("context");
  if (context == object.end() || !context->is_string()) return wrong("context", "a text");
  task.context = context->get<std::string>();
  const auto choices = object.find("choices");
  if (choices == object.end() || !choices->is_array() || choices->size() < 2) {
    return wrong("choices", "a list of two texts or more");
  }
  for (const nlohmann::json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      return wrong("choices", "a list of texts that are not empty");
    }
    task.choices.push_back(choice.get<std::string>());
  }
  const auto answer = object.find("answer");
  if (answer == object.end() || !answer->is_number_unsigned() ||
      answer->get<std::uint64_t>() >= task.choices.size()) {
    return wrong("answer", fmt::format("the index of a choice, 0 to {}", task.choices.size() - 1));
  }
  task.answer = answer->get<std::size_t>();
  return task;
}

}  // namespace

Result<std::vector<ChoiceTask>> read_tasks(std::string_view text, std::string_view where) {
  std::vector<ChoiceTask> tasks;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    auto task = read_task(line, fmt::format("{}:{}", where, number));
    if (!task.ok()) return fail(ErrorCode::invalid_argument, "{}", task.error().message);
    tasks.push_back(*std::move(task));
  }
  if (tasks.empty()) return fail(ErrorCode::invalid_argument, "{}: there are no tasks", where);
  return tasks;
}

Result<Continuation> encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                         std::string_view continuation) {
  const std::size_t kept = context.find_last_not_of(' ') + 1;
  const std::string whole = fmt::format("{}{}", context, continuation);
  Continuation encoded;
  TROUPE_TRY(encoded.ids, tokenizer.encode(whole, false));
  TROUPE_TRY(const auto before, tokenizer.encode(context.substr(0, kept), false));
  encoded.begin = before.size();
  if (before.empty()) {
    return fail(ErrorCode::invalid_argument, "the context is empty: it has no tokens");
  }
  if (encoded.ids.size() <= before.size()) {
    return fail(ErrorCode::invalid_argument, "\"{}\" has no tokens of its own after its context",
                continuation);
  }
  return encoded;
}

std::size_t chosen(const ChoiceTask& task, const std::vector<double>& log_likelihoods,
                   bool normalized) {
  const auto value = [&](std::size_t i) {
    return normalized ? log_likelihoods[i] / static_cast<double>(task.choices[i].size())
                      : log_likelihoods[i];
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < log_likelihoods.size(); ++i) {
    if (value(i) > value(best)) best = i;
  }
  return best;
}

ChoiceFigures choice_figures(const std::vector<ChoiceTask>& tasks,
                             const std::vector<std::vector<double>>& log_likelihoods) {
  ChoiceFigures figures{.tasks = tasks.size()};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    figures.accuracy += chosen(tasks[i], log_likelihoods[i], false) == tasks[i].answer ? 1 : 0;
    figures.normalized_accuracy +=
        chosen(tasks[i], log_likelihoods[i], true) == tasks[i].answer ? 1 : 0;
  }
  const double count = std::max<double>(1, static_cast<double>(tasks.size()));
  figures.accuracy /= count;
  figures.normalized_accuracy /= count;
  return figures;
}

}  // namespace troupe
