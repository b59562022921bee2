#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A multiple-choice task.
struct ChoiceTask {
  std::string context;
  std::vector<std::string> choices;
  std::size_t answer = 0;
};

/// Reads a task a line: {"context": TEXT, "choices": [TEXT, TEXT, ...], "answer": INDEX}; empty
/// lines are skipped. Errors: invalid_argument with `where` and line; with `where` if there is
/// none.
Result<std::vector<ChoiceTask>> read_tasks(std::string_view text, std::string_view where);

/// A context and what follows it, in tokens.
struct Continuation {
  std::vector<std::int32_t> ids;  ///< of both
  std::size_t begin = 0;          ///< of what follows, at least 1
};

/// Tokenises `context` and `continuation` as one text. Spaces at the context's end count to what
/// follows, as tokens rarely end in spaces (lm-eval's convention). Errors: invalid_argument if
/// either has no tokens of its own; those of Tokenizer::encode.
Result<Continuation> encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                         std::string_view continuation);

/// The figures of tasks, as shares of them.
struct ChoiceFigures {
  std::size_t tasks = 0;
  double accuracy = 0;             ///< the answer has the largest log-likelihood
  double normalized_accuracy = 0;  ///< the same, divided by the bytes of each choice
};

/// The choice that the log-likelihoods of all choices make; of equals the first. `normalized`: each
/// is divided by the bytes of its choice.
std::size_t chosen(const ChoiceTask& task, const std::vector<double>& log_likelihoods,
                   bool normalized);

/// `log_likelihoods`: of the choices of each task.
ChoiceFigures choice_figures(const std::vector<ChoiceTask>& tasks,
                             const std::vector<std::vector<double>>& log_likelihoods);

}  // namespace troupe
