#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

/// One step of a domain, or several adjacent ones added up. Times are microseconds of
/// CLOCK_MONOTONIC.
struct StepRecord {
  std::int64_t planned_us = 0;   ///< when the first step's plan was sent
  std::int64_t answered_us = 0;  ///< when the last step's result came
  std::uint64_t steps = 1;
  std::uint64_t step_us = 0;   ///< from plan to result; overlapping steps each count in full
  std::uint64_t model_us = 0;  ///< inside steps on the answering rank, which runs one at a time
  std::uint64_t prompt_tokens = 0;  ///< computed
  std::uint64_t prefix_tokens = 0;  ///< found in the prefix cache instead
  std::uint64_t output_tokens = 0;
  // Sums over the steps, of the state when each result came.
  std::uint64_t sequences = 0;  ///< in the step
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  double kv_use = 0;      ///< 0..1 each
  double max_kv_use = 0;  ///< of one step

  /// Adds the steps that follow this one.
  void add(const StepRecord& next);

  template <class Archive>
  void fields(Archive& archive) {
    archive(planned_us, answered_us, steps, step_us, model_us, prompt_tokens, prefix_tokens,
            output_tokens, sequences, running, waiting, kv_use, max_kv_use);
  }
};

/// The steps since the last report: at most `max_records` records; beyond that, adjacent ones are
/// added up, so that only detail is lost. One thread at a time.
class StepBatch {
 public:
  static constexpr std::size_t max_records = 256;

  StepBatch() { records_.reserve(max_records); }

  void add(const StepRecord& record);
  std::vector<StepRecord> take();

 private:
  std::vector<StepRecord> records_;
};

}  // namespace troupe
