#include "launcher/metrics/job_metrics.hpp"

#include <array>
#include <utility>

namespace troupe {
namespace {

// vLLM's buckets, in seconds.
constexpr auto first_token_bounds =
    std::to_array<double>({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,  0.75,
                           1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160., 640., 2560.});
constexpr auto end_to_end_bounds =
    std::to_array<double>({0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,  15.0,  20.0,
                           30.0, 40.0, 50.0, 60.0, 120., 240.0, 480.0, 960.0, 1920., 7680.0});
constexpr auto per_token_bounds =
    std::to_array<double>({0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
                           5.0, 7.5, 10.0, 20.0, 40.0, 80.0});

/// 1, 2, 5, 10, 20, 50, ... up to `most`, as in vLLM.
std::vector<double> token_bounds(std::int64_t most) {
  std::vector<double> bounds;
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if (digit * power > most) return bounds;
      bounds.push_back(static_cast<double>(digit * power));
    }
  }
}

double seconds(std::uint64_t microseconds) { return static_cast<double>(microseconds) * 1e-6; }

}  // namespace

JobMetrics::JobMetrics(std::string model_name, std::int64_t max_model_len)
    : model_name_(std::move(model_name)),
      token_bounds_(token_bounds(max_model_len)),
      first_token_seconds_(first_token_bounds),
      end_to_end_seconds_(end_to_end_bounds),
      per_token_seconds_(per_token_bounds),
      prompt_tokens_(token_bounds_),
      generation_tokens_(token_bounds_) {}

void JobMetrics::observe(const EngineReport& report) {
  const std::scoped_lock lock(mutex_);
  stats_ = report.stats;
  for (const Completion& completion : report.completions) take(completion);
  // An executor that has taken over tells its layers again.
  for (const WidenedLayer& widened : report.widened) {
    fallen_back_.emplace(report.domain, widened.layer);
  }
}

void JobMetrics::take(const Completion& completion) {
  if (completion.failed()) {
    ++errors_[completion.error_code];
    return;
  }
  std::size_t generated = 0;
  for (const Choice& choice : completion.choices) generated += choice.token_ids.size();
  const bool length = !completion.choices.empty() &&
                      completion.choices.front().finish_reason == FinishReason::length;
  ++successes_[length ? "length" : "stop"];
  prompt_tokens_.observe(static_cast<double>(completion.prompt_ids.size()));
  generation_tokens_.observe(static_cast<double>(generated));
  if (completion.first_token_us == 0) return;  // a prompt that was only scored
  first_token_seconds_.observe(seconds(completion.first_token_us));
  end_to_end_seconds_.observe(seconds(completion.last_token_us));
  if (completion.choices.size() != 1 || generated < 2) return;
  per_token_seconds_.observe(seconds(completion.last_token_us - completion.first_token_us) /
                             static_cast<double>(generated - 1));
}

void JobMetrics::count_line_error(std::string_view code) {
  const std::scoped_lock lock(mutex_);
  ++errors_[std::string(code)];
}

void JobMetrics::count_recovery(const EngineRecovery& recovery) {
  if (!recovery.seconds) return;
  const std::scoped_lock lock(mutex_);
  ++recoveries_;
  recovery_seconds_ += *recovery.seconds;
  recomputed_sequences_ += recovery.sequences;
}

void JobMetrics::set_domains(std::int32_t serving, std::int32_t all) {
  const std::scoped_lock lock(mutex_);
  domains_serving_ = serving;
  domains_ = all;
}

void JobMetrics::set_lines(std::uint64_t done, std::uint64_t total) {
  const std::scoped_lock lock(mutex_);
  lines_done_ = done;
  lines_total_ = total;
}

void JobMetrics::set_rank_busy(std::vector<double> shares) {
  const std::scoped_lock lock(mutex_);
  rank_busy_ = std::move(shares);
}

std::string JobMetrics::text() const {
  Exposition out(MetricLabels{{"model_name", model_name_}, {"engine", "0"}});
  const std::scoped_lock lock(mutex_);
  write_engine(out);
  write_requests(out);
  write_job(out);
  return std::move(out).text();
}

void JobMetrics::write_engine(Exposition& out) const {
  const SchedulerCounters& counters = stats_.scheduler;
  const auto count = [](std::uint64_t value) { return static_cast<double>(value); };
  out.gauge("vllm:num_requests_running", "Requests in the engine that have KV blocks.",
            count(stats_.running));
  out.gauge("vllm:num_requests_waiting", "Requests in the engine that wait to begin.",
            count(stats_.waiting));
  out.gauge("vllm:kv_cache_usage_perc", "KV blocks in use; 1 is all of them.", stats_.kv_use);
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.",
              count(counters.looked_up_tokens));
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
              count(counters.prefix_tokens));
  out.counter("vllm:num_preemptions_total", "Sequences that gave their KV blocks back.",
              count(counters.preemptions + counters.swaps));
  out.counter("troupe:swaps_total", "Of these, whose keys and values went to host memory.",
              count(counters.swaps));
  out.counter("vllm:prompt_tokens_total",
              "Prompt tokens computed, or found in the prefix cache; each once.",
              count(counters.prompt_tokens - counters.recomputed_tokens + counters.prefix_tokens));
  out.counter("vllm:generation_tokens_total", "Tokens generated.", count(stats_.output_tokens));
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens guessed.", count(counters.drafts));
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.",
              count(counters.accepted_drafts));
  out.counter("troupe:steps_total", "Steps of the engine, of all replicas.", count(stats_.steps));
  out.counter("troupe:step_seconds_total", "Time from a step's plan to its result.",
              seconds(stats_.step_us));
  out.counter("troupe:fallen_back_layers_total",
              "Layers that no longer round activations to 8 bits, of each step domain.",
              count(fallen_back_.size()));
  if (!rank_busy_.empty()) {
    out.gauges("troupe:rank_busy_ratio", "Time in the model in the last seconds; 1 is all of it.",
               "rank", rank_busy_);
  }
  out.counter("troupe:model_seconds_total", "Of troupe:step_seconds_total, time in the model.",
              seconds(stats_.model_us));
}

void JobMetrics::write_requests(Exposition& out) const {
  const std::vector<std::pair<std::string, std::uint64_t>> successes(successes_.begin(),
                                                                     successes_.end());
  out.counters("vllm:request_success_total", "Requests that were answered.", "finished_reason",
               successes);
  out.histogram("vllm:time_to_first_token_seconds",
                "From the engine's taking a request in to its first token.", first_token_seconds_);
  out.histogram("vllm:e2e_request_latency_seconds",
                "From the engine's taking a request in to its last token.", end_to_end_seconds_);
  out.histogram("vllm:request_time_per_output_token_seconds",
                "Time per token after the first, of requests for one answer.", per_token_seconds_);
  out.histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", prompt_tokens_);
  out.histogram("vllm:request_generation_tokens", "Tokens generated for a request.",
                generation_tokens_);
}

void JobMetrics::write_job(Exposition& out) const {
  out.gauge("troupe:input_lines", "Lines of the input; 0: not known.",
            static_cast<double>(lines_total_));
  out.counter("troupe:lines_done_total", "Lines of the output: answers and errors.",
              static_cast<double>(lines_done_));
  out.gauge("troupe:step_domains", "Groups of replicas that step together.",
            static_cast<double>(domains_));
  out.gauge("troupe:step_domains_serving", "Of these, those that have not been dropped.",
            static_cast<double>(domains_serving_));
  out.counter("troupe:recoveries_total", "Losses of processes that the job went on after.",
              static_cast<double>(recoveries_));
  out.counter("troupe:recovery_seconds_total", "Time from these losses to the next steps.",
              recovery_seconds_);
  out.counter("troupe:recovered_sequences_total", "Sequences computed anew after them.",
              static_cast<double>(recomputed_sequences_));
  const std::vector<std::pair<std::string, std::uint64_t>> errors(errors_.begin(), errors_.end());
  out.counters("troupe:line_errors_total", "Error lines of this run.", "code", errors);
}

}  // namespace troupe
