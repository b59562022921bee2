#include "actors/executor/report_parts.hpp"

#include <utility>

#include "actors/executor/answer_limits.hpp"
#include "actors/executor/prepared_request.hpp"

namespace troupe {

std::vector<EngineReport> split_report(EngineReport report, std::size_t max_bytes) {
  std::vector<Completion> completions = std::exchange(report.completions, {});
  EngineReport rest;
  rest.domain = report.domain;
  rest.executor = report.executor;
  rest.incarnation = report.incarnation;
  rest.epoch = report.epoch;
  rest.stats = report.stats;
  std::vector<SequenceUpdate> progress = std::exchange(report.progress, {});
  std::vector<EngineReport> parts;
  parts.push_back(std::move(report));
  std::size_t bytes = 0;
  for (Completion& completion : completions) {
    std::size_t own = message_bytes(completion);
    if (own > max_completion_bytes) {
      completion = refuse(completion.id, "answer_too_large",
                          fmt::format("the answer takes {} bytes, more than {}: lower n, "
                                      "max_tokens, logprobs or prompt_logprobs",
                                      own, max_completion_bytes));
      own = message_bytes(completion);
    }
    if (bytes > 0 && bytes + own > max_bytes) {
      parts.push_back(rest);
      bytes = 0;
    }
    bytes += own;
    parts.back().completions.push_back(std::move(completion));
  }
  parts.back().progress = std::move(progress);
  return parts;
}

}  // namespace troupe
