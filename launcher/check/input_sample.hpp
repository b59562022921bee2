#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "launcher/job/job_plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The result of checking the first lines of a job's input.
struct InputSample {
  struct Problem {
    std::size_t line = 0;
    std::string code;
    std::string message;
  };
  std::size_t lines = 0;       ///< checked
  bool is_all = false;         ///< the input has no more lines
  std::size_t bad = 0;         ///< would get error lines
  std::vector<Problem> first;  ///< a few of them
  std::map<std::string, std::size_t> by_code;
};

/// Checks the first lines of the plan's job.input, at most `max_lines`, as a run does: the form of
/// the line, the chat template, the tokens and the context length. The plan was made with
/// keeps_preprocessor. Errors: those of BatchReader::open.
Result<InputSample> sample_input(const JobPlan& plan, std::size_t max_lines);

/// Text for people: a line with the counts, then the first problems; ends with a newline.
std::string describe(const InputSample& sample, const std::string& input);

}  // namespace troupe
