#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/api/report.hpp"
#include "runtime/metrics/exposition.hpp"

namespace troupe {

/// The Prometheus metrics of a running job. Names that begin with vllm: have vLLM's meaning
/// (vllm/v1/metrics/loggers.py), with its labels model_name and engine and its buckets; those that
/// begin with troupe: are our own. docs/operations.md lists them. Callable from any thread.
class JobMetrics {
 public:
  /// `max_model_len`: of the engine; the buckets of token counts end there.
  JobMetrics(std::string model_name, std::int64_t max_model_len);

  /// Adds the engine's report: its load, its completions, and the layers that have fallen back.
  void observe(const EngineReport& report);

  /// Counts an input line that never reached the engine, by the code of its error line.
  void count_line_error(std::string_view code);

  /// Counts a recovery that has ended.
  void count_recovery(const EngineRecovery& recovery);

  /// Sets how many step domains are there, of all; at first one of one.
  void set_domains(std::int32_t serving, std::int32_t all);

  /// Sets the lines with an answer or an error in the output, and all lines, 0 if not known.
  void set_lines(std::uint64_t done, std::uint64_t total);

  /// Sets the share of the last seconds that each rank spent in the model, 0..1; empty: not known.
  void set_rank_busy(std::vector<double> shares);

  /// Everything in Prometheus' text format.
  std::string text() const;

 private:
  void take(const Completion& completion);
  void write_engine(Exposition& out) const;
  void write_requests(Exposition& out) const;
  void write_job(Exposition& out) const;

  const std::string model_name_;
  const std::vector<double> token_bounds_;
  mutable std::mutex mutex_;  // guards everything below
  EngineStats stats_;
  std::uint64_t lines_done_ = 0;
  std::uint64_t lines_total_ = 0;
  std::vector<double> rank_busy_;
  std::int32_t domains_serving_ = 1;
  std::int32_t domains_ = 1;
  std::uint64_t recoveries_ = 0;
  double recovery_seconds_ = 0;
  std::uint64_t recomputed_sequences_ = 0;
  std::set<std::pair<std::int32_t, std::int32_t>> fallen_back_;  // domain, layer
  std::map<std::string, std::uint64_t> successes_ = {{"stop", 0}, {"length", 0}};
  std::map<std::string, std::uint64_t, std::less<>> errors_;  // by code
  HistogramBuckets first_token_seconds_;
  HistogramBuckets end_to_end_seconds_;
  HistogramBuckets per_token_seconds_;
  HistogramBuckets prompt_tokens_;
  HistogramBuckets generation_tokens_;
};

}  // namespace troupe
