#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/cli/eval_options.hpp"
#include "launcher/eval/choice_tasks.hpp"
#include "launcher/eval/windows.hpp"
#include "launcher/job/job_plan.hpp"
#include "models/text/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What models are judged by, in the tokens that they share.
struct EvalInput {
  std::string text;                  ///< empty: none
  std::vector<std::int32_t> tokens;  ///< of the text
  std::vector<Window> windows;
  std::size_t scored_tokens = 0;
  std::vector<ChoiceTask> tasks;
  std::vector<std::vector<Continuation>> choices;  ///< of each task, after its context

  /// The number of requests that a model answers, without greedy ones.
  std::size_t requests() const;
};

/// Reads the files of the options and tokenises them for the planned model, whose preprocessor is
/// kept. Errors: those of ByteSource; invalid_argument with the file for a text without tokens or
/// not of UTF-8, for windows and tasks that are longer than the context, and those of read_tasks.
Result<EvalInput> read_eval_input(const EvalOptions& options, const JobPlan& plan);

/// Refuses a second model whose vocabulary is another one, or which reads this input as other
/// tokens, or has no room for it.
Result<void> check_same_tokens(const EvalOptions& options, const EvalInput& input,
                               const JobPlan& first, const JobPlan& second);

}  // namespace troupe
