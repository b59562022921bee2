#include "launcher/cli/schedule_options.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"

namespace troupe {
namespace {

const std::vector<std::string> all_policies = {"fcfs", "priority", "sjf", "deadline"};

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

/// What is not stored where it belongs by CLI11 itself.
struct RawOptions {
  std::optional<std::int32_t> num_prompts;
  std::string lengths = "lognormal";
  double first_token_ms = 500.0;
  double each_token_ms = 25.0;
  std::int32_t steps_in_flight = 0;  ///< 0: not given
  bool no_chunked_prefill = false;
  bool no_prefix_caching = false;
};

ScheduleOptions defaults() {
  ScheduleOptions options;
  options.policies = all_policies;
  options.scheduler.max_num_seqs = 32;
  options.scheduler.kv_cache_blocks = 2'048;
  options.scheduler.prefix_caching = true;
  options.trace.requests_per_s = 30.0;
  options.targets.urgent_share = 0.2;
  options.targets.patience = 5.0;
  return options;
}

void declare_trace(CLI::App& app, ScheduleOptions& options, RawOptions& raw) {
  const CLI::Range count(1, 1 << 24);
  const CLI::Range share(0.0, 1.0);
  TraceSpec& trace = options.trace;
  CLI::Option* file = app.add_option("--workload", options.workload);
  const auto random_only = [&](CLI::Option* option) { option->excludes(file); };
  app.add_option("--num-prompts", raw.num_prompts)->check(count);
  random_only(app.add_option("--rate", trace.requests_per_s)->check(CLI::Range(0.0, 1e6)));
  random_only(app.add_option("--lengths", raw.lengths)
                  ->check(CLI::IsMember({"fixed", "uniform", "lognormal"})));
  random_only(app.add_option("--input-len", trace.mean_prompt_tokens)->check(count));
  random_only(app.add_option("--output-len", trace.mean_max_tokens)->check(count));
  random_only(app.add_option("--stop-early", trace.stopping_share)->check(share));
  random_only(app.add_option("--prefix-share", trace.prefix_share)->check(share));
  random_only(app.add_option("--prefix-len", trace.prefix_tokens)->check(CLI::Range(0, 1 << 24)));
  random_only(app.add_option("--prefix-families", trace.prefix_families)->check(count));
  app.add_option("--seed", trace.seed);
  app.add_option("--ttft-ms", raw.first_token_ms)->check(CLI::Range(0.0, 1e9));
  app.add_option("--tpot-ms", raw.each_token_ms)->check(CLI::Range(0.0, 1e6));
  app.add_option("--urgent-share", options.targets.urgent_share)->check(share);
  app.add_option("--patience", options.targets.patience)->check(CLI::Range(1.0, 1e6));
}

void declare_engine(CLI::App& app, ScheduleOptions& options, RawOptions& raw) {
  const CLI::Range count(1, 1 << 24);
  const CLI::Range few(1, 1'024);
  const CLI::Range us(0.0, 1e6);
  SchedulerConfig& scheduler = options.scheduler;
  app.add_option("--policies", options.policies)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(all_policies));
  app.add_option("--max-num-seqs", scheduler.max_num_seqs)->check(CLI::Range(1, 1 << 16));
  app.add_option("--max-num-batched-tokens", scheduler.max_num_batched_tokens)->check(count);
  app.add_option("--max-model-len", scheduler.max_model_len)->check(CLI::Range(2, 1 << 24));
  app.add_option("--block-size", scheduler.block_size)->check(few);
  app.add_option("--kv-cache-blocks", scheduler.kv_cache_blocks)->check(count);
  app.add_option("--swap-blocks", scheduler.swap_blocks)->check(CLI::Range(0, 1 << 24));
  app.add_option("--steps-in-flight", raw.steps_in_flight)->check(few);
  app.add_option("--stages", options.cost.stages)->check(few);
  app.add_flag("--no-chunked-prefill", raw.no_chunked_prefill);
  app.add_flag("--no-prefix-caching", raw.no_prefix_caching);
  app.add_option("--us-per-step", options.cost.us_per_step)->check(us);
  app.add_option("--us-per-token", options.cost.us_per_token)->check(us);
  app.add_option("--us-per-kv-token", options.cost.us_per_kv_token)->check(us);
  app.add_option("--us-per-plan", options.cost.us_per_plan)->check(us);
  app.add_option("--json", options.json_path);
}

EarlyExit about_unknown(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (!name.starts_with('-')) return refuse(fmt::format("unexpected argument {}", name));
  return refuse(about_unknown_option(name, option_names(app), "launcher bench schedule --help"));
}

std::variant<ScheduleOptions, EarlyExit> judge(ScheduleOptions options, const RawOptions& raw) {
  for (std::size_t i = 0; i < options.policies.size(); ++i) {
    const auto begin = options.policies.begin();
    if (std::find(begin, begin + static_cast<std::ptrdiff_t>(i), options.policies[i]) !=
        begin + static_cast<std::ptrdiff_t>(i)) {
      return refuse(fmt::format("--policies names {} twice", options.policies[i]));
    }
  }
  const std::map<std::string_view, LengthSpread> spreads = {{"fixed", LengthSpread::fixed},
                                                            {"uniform", LengthSpread::uniform},
                                                            {"lognormal", LengthSpread::lognormal}};
  const std::int32_t default_prompts = options.workload.empty() ? 1'000 : 1 << 20;
  options.trace.requests = raw.num_prompts.value_or(default_prompts);
  options.trace.spread = spreads.at(raw.lengths);
  options.trace.max_sequence_tokens = options.scheduler.max_model_len;
  options.targets.first_token_us = std::llround(raw.first_token_ms * 1e3);
  options.targets.each_token_us = std::llround(raw.each_token_ms * 1e3);
  options.targets.seed = options.trace.seed;
  options.scheduler.micro_batches = options.cost.stages;
  options.scheduler.max_steps_in_flight =
      raw.steps_in_flight > 0 ? raw.steps_in_flight : options.cost.stages + 1;
  options.scheduler.chunked_prefill = !raw.no_chunked_prefill;
  options.scheduler.prefix_caching = !raw.no_prefix_caching;
  return options;
}

}  // namespace

std::variant<ScheduleOptions, EarlyExit> parse_schedule_options(
    std::span<const std::string> arguments) {
  const auto is_help = [](const std::string& given) { return given == "--help" || given == "-h"; };
  if (std::any_of(arguments.begin(), arguments.end(), is_help)) {
    return EarlyExit{ExitCode::all_answered, schedule_help_text(), false};
  }
  ScheduleOptions options = defaults();
  RawOptions raw;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();  // so that the nearest option can be named
  declare_trace(app, options, raw);
  declare_engine(app, options, raw);
  try {
    // CLI11 takes a vector from its end.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Error& error) {
    return refuse(fmt::format("{}; try launcher bench schedule --help", error.what()));
  }
  const auto extras = app.remaining();
  if (!extras.empty()) return about_unknown(app, extras.front());
  return judge(std::move(options), raw);
}

std::string schedule_help_text() {
  return R"(launcher bench schedule: compares scheduling policies by simulation: the
scheduler is the real one, requests are a trace, and steps take what a formula
says.

  launcher bench schedule [options]

Requests
  --workload FILE      .csv: lines "prompt_tokens,max_tokens"; all come at time
                       0. Without it they are drawn:
  --num-prompts N      so many (1000); of a file the first N
  --rate R             that come R a second on average (30); 0: all at time 0
  --input-len N        tokens of a prompt on average (256)
  --output-len N       tokens of an answer at most, on average (128)
  --lengths SPREAD     fixed, uniform or lognormal (default)
  --stop-early SHARE   of requests that end before that (0)
  --prefix-share SHARE of requests with a common prefix before the prompt (0)
  --prefix-len N       tokens of a prefix (0)
  --prefix-families N  different prefixes (1)
  --seed N             other arrivals, lengths and targets (0)

Targets, for goodput and for the policies priority and deadline
  --ttft-ms MS         the first token is due so long after the arrival (500)
  --tpot-ms MS         the last one, for each of max_tokens, so much later (25)
  --urgent-share SHARE of requests that want this and have priority (0.2)
  --patience TIMES     the others may take so many times as long (5)

Scheduler
  --policies LIST      of fcfs,priority,sjf,deadline (all of them)
  --max-num-seqs N     requests that run at one time (32)
  --max-num-batched-tokens N   in a step (2048)
  --max-model-len N    tokens of prompt and answer (2048)
  --block-size N, --kv-cache-blocks N   of the KV cache (16, 2048)
  --swap-blocks N      in host memory, for requests that make room (0)
  --stages N           of a pipeline (1); so many micro-batches
  --steps-in-flight N  (one more than stages)
  --no-chunked-prefill, --no-prefix-caching

Cost of a step, in microseconds (about those of fable-moe on one CPU core)
  --us-per-step US     in any case (300)
  --us-per-token US    for each token computed (67)
  --us-per-kv-token US for each earlier position that a request reads (0.25)
  --us-per-plan US     from plan to step; steps in flight hide it (100)

  --json FILE          write all figures there
  -h, --help           print this text
)";
}

}  // namespace troupe
