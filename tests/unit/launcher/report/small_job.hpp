#pragma once

#include <memory>

#include <fmt/format.h>

#include "launcher/report/job_recorder.hpp"

namespace troupe::report_test {

/// A worker of two stages that has run `steps` steps of 10 ms: 2 ms exchange, 3 ms waiting for the
/// other stage.
inline ProcessTelemetry worker(std::int32_t rank, std::uint64_t steps = 10) {
  ProcessTelemetry worker;
  worker.process = fmt::format("worker-{}", rank);
  worker.role = ProcessRole::worker;
  worker.index = rank;
  worker.stage = rank;
  worker.place = fmt::format("data 0, stage {}, context 0, tensor 0", rank);
  worker.since_ns = 1'000'000'000;
  worker.now_ns = 2'000'000'000;
  const auto set = [&](SpanKind kind, std::int64_t ms) {
    worker.totals.counts[static_cast<std::size_t>(kind)] = steps;
    worker.totals.ns[static_cast<std::size_t>(kind)] =
        static_cast<std::int64_t>(steps) * ms * 1'000'000;
  };
  set(SpanKind::step, 10);
  set(SpanKind::exchange, 2);
  set(SpanKind::stage, 3);
  set(SpanKind::wait_plan, 40);
  worker.rows = 100;
  worker.expert_rows = {
      .first_layer = rank, .layers = 1, .first_expert = 0, .experts = 4, .rows = {80, 60, 40, 20}};
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t at = 1'100'000'000 + i * 10'000'000;
    worker.kept.spans.push_back({SpanKind::forward, 7, at + 1'000'000, at + 8'000'000});
    worker.kept.spans.push_back({SpanKind::step, 7, at, at + 10'000'000});
  }
  return worker;
}

inline Completion completion(std::uint64_t first_ms, std::uint64_t last_ms, std::size_t tokens) {
  Completion completion;
  completion.prompt_ids = {1, 2, 3};
  completion.choices.resize(1);
  completion.choices[0].token_ids.assign(tokens, 9);
  completion.first_token_us = first_ms * 1000;
  completion.last_token_us = last_ms * 1000;
  return completion;
}

inline JobFacts facts() {
  JobFacts facts;
  facts.name = "tales";
  facts.version = "launcher (Troupe) 0.1.0";
  facts.host = "gpu01";
  facts.cores = 8;
  facts.input = "in.jsonl";
  facts.output = "out.jsonl";
  facts.model_path = "models/tiny";
  facts.architecture = "Qwen3MoeForCausalLM";
  facts.config_yaml = "name: tales\n";
  facts.began_unix_s = 1'795'258'812;
  facts.experts_per_token = 2;
  facts.objectives = {.ttft_ms = 150, .itl_ms = 10, .e2e_ms = std::nullopt};
  return facts;
}

/// A finished job: from 0 to 3 s, ready at 1 s, two ranks, three answers of which two are good, two
/// error lines.
inline std::unique_ptr<JobRecorder> small_job(JobFacts of = facts()) {
  auto made = std::make_unique<JobRecorder>(std::move(of), 0);
  JobRecorder& job = *made;
  job.engine_ready(1'000'000);
  EngineReport report;
  report.completions = {completion(100, 180, 9), completion(120, 210, 10), completion(200, 240, 5)};
  Completion refused;
  refused.error_code = "context_length_exceeded";
  report.completions.push_back(refused);
  report.dropped = {41, 42};
  StepRecord step;
  step.planned_us = 1'000'000;
  step.answered_us = 1'500'000;
  step.output_tokens = 24;
  step.prompt_tokens = 9;
  step.kv_use = step.max_kv_use = 0.25;
  step.running = 3;
  report.steps = {step};
  report.stats.steps = 1;
  report.stats.output_tokens = 24;
  report.stats.step_us = 500'000;
  report.stats.model_us = 400'000;
  report.stats.shared_positions = 640;
  report.stats.active_us = 500'000;
  report.stats.scheduler.prompt_tokens = 9;
  job.take(report);
  ProcessTelemetry executor;
  executor.process = "executor";
  executor.role = ProcessRole::executor;
  executor.inter_token_us.add(10'000, 21);
  executor.kept.spans = {{SpanKind::plan, 7, 1'090'000'000, 1'091'000'000}};
  job.take(worker(1));
  job.take(executor);
  job.take(worker(0));
  job.spans().record(SpanKind::read, 1'010'000'000, 1'012'000'000);
  ErrorTally errors;
  errors.add(4, "context_length_exceeded", "too long");
  errors.add(2, "invalid_json", "<b>not</b> valid JSON at byte 1");
  job.set_errors(errors);
  job.finish(JobOutcome::answered_with_errors, "", 3'000'000);
  return made;
}

}  // namespace troupe::report_test
