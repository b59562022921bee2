#include "actors/telemetry/step_record.hpp"

#include <algorithm>

namespace troupe {

void StepRecord::add(const StepRecord& next) {
  answered_us = std::max(answered_us, next.answered_us);
  steps += next.steps;
  step_us += next.step_us;
  model_us += next.model_us;
  prompt_tokens += next.prompt_tokens;
  prefix_tokens += next.prefix_tokens;
  output_tokens += next.output_tokens;
  sequences += next.sequences;
  running += next.running;
  waiting += next.waiting;
  kv_use += next.kv_use;
  max_kv_use = std::max(max_kv_use, next.max_kv_use);
}

void StepBatch::add(const StepRecord& record) {
  if (records_.size() == max_records) {
    for (std::size_t i = 0; i < max_records / 2; ++i) {
      records_[i] = records_[2 * i];
      records_[i].add(records_[2 * i + 1]);
    }
    records_.resize(max_records / 2);
  }
  records_.push_back(record);
}

std::vector<StepRecord> StepBatch::take() {
  std::vector<StepRecord> taken(records_.begin(), records_.end());
  records_.clear();
  return taken;
}

}  // namespace troupe
