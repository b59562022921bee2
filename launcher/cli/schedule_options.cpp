#include "launcher/cli/schedule_options.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/cli/number_checks.hpp"

namespace troupe {
namespace {

const std::vector<std::string> all_policies = {"fcfs", "priority", "sjf", "deadline"};
const std::vector<std::string> all_spreads = {"fixed", "uniform", "lognormal"};
constexpr std::int64_t max_count = 1 << 24;

CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto check = [words](std::string& word) -> std::string {
    if (std::ranges::find(words, word) != words.end()) return {};
    return fmt::format("expected one of {}, found {}", fmt::join(words, ", "), word);
  };
  return {check, ""};
}

/// Adds options with values of one kind to an app.
class Group {
 public:
  Group(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  template <class T>
  CLI::Option* integer(const char* option, T& value, std::int64_t least, std::int64_t most,
                       const char* text) {
    return add(option, value, "N", text)->check(integer_between(least, most));
  }
  template <class T>
  CLI::Option* number(const char* option, T& value, double most, const char* type, const char* text,
                      double least = 0) {
    return add(option, value, type, text)->check(number_between(least, most));
  }
  template <class T>
  CLI::Option* add(const char* option, T& value, const char* type, const char* text) {
    return app_.add_option(option, value, text)
        ->type_name(type)
        ->group(name_)
        ->capture_default_str();
  }
  void flag(const char* option, bool& value, const char* text) {
    app_.add_flag(option, value, text)->group(name_);
  }

 private:
  CLI::App& app_;
  std::string name_;
};

}  // namespace

ScheduleArguments::ScheduleArguments() {
  options_.policies = all_policies;
  options_.scheduler.max_num_seqs = 32;
  options_.scheduler.kv_cache_blocks = 2'048;
  options_.scheduler.prefix_caching = true;
  options_.trace.requests_per_s = 30.0;
  options_.targets.urgent_share = 0.2;
  options_.targets.patience = 5.0;
}

std::string_view ScheduleArguments::summary() const {
  return "Compares scheduling policies by simulation: the scheduler is the real one, requests are "
         "a "
         "trace, and steps take what a formula says.";
}

std::string ScheduleArguments::details() const {
  return "The usual costs of a step are about those of fable-moe on one CPU core.";
}

void ScheduleArguments::declare(CLI::App& app) {
  declare_trace(app);
  declare_targets(app);
  declare_scheduler(app);
  declare_cost(app);
  app.add_option("--json", options_.json_path, "write all figures there")->type_name("FILE");
}

void ScheduleArguments::declare_trace(CLI::App& app) {
  Group group(app, "Requests");
  TraceSpec& trace = options_.trace;
  CLI::Option* const file =
      group.add("--workload", options_.workload, "FILE",
                "a .csv of lines \"prompt_tokens,max_tokens\"; all come at time 0. Without it "
                "requests are drawn");
  group.integer("--num-prompts", num_prompts_, 1, max_count, "so many; of a file the first")
      ->default_str("1000");
  const auto random_only = [&](CLI::Option* option) { option->excludes(file); };
  random_only(group.number("--rate", trace.requests_per_s, 1e6, "R",
                           "arrivals a second on average; 0: all at time 0"));
  random_only(group.integer("--input-len", trace.mean_prompt_tokens, 1, max_count,
                            "tokens of a prompt on average"));
  random_only(group.integer("--output-len", trace.mean_max_tokens, 1, max_count,
                            "tokens of an answer at most, on average"));
  random_only(group.add("--lengths", lengths_, "SPREAD", "fixed, uniform or lognormal")
                  ->check(one_of(all_spreads)));
  random_only(group.number("--stop-early", trace.stopping_share, 1, "SHARE",
                           "of requests that end before that"));
  random_only(group.number("--prefix-share", trace.prefix_share, 1, "SHARE",
                           "of requests with a common prefix before the prompt"));
  random_only(
      group.integer("--prefix-len", trace.prefix_tokens, 0, max_count, "tokens of a prefix"));
  random_only(group.integer("--prefix-families", trace.prefix_families, 1, max_count,
                            "different prefixes"));
  group.integer("--seed", trace.seed, 0, std::numeric_limits<std::int64_t>::max(),
                "other arrivals, lengths and targets");
}

void ScheduleArguments::declare_targets(CLI::App& app) {
  Group group(app, "Targets, for goodput and for the policies priority and deadline");
  group.number("--ttft-ms", first_token_ms_, 1e9, "MS",
               "the first token is due so long after the arrival");
  group.number("--tpot-ms", each_token_ms_, 1e6, "MS",
               "the last one, for each of max_tokens, so much later");
  group.number("--urgent-share", options_.targets.urgent_share, 1, "SHARE",
               "of requests that want this and have priority");
  group.number("--patience", options_.targets.patience, 1e6, "TIMES",
               "the others may take so many times as long", 1);
}

void ScheduleArguments::declare_scheduler(CLI::App& app) {
  Group group(app, "Scheduler");
  SchedulerConfig& scheduler = options_.scheduler;
  group.add("--policies", options_.policies, "LIST", "which, in this order")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of(all_policies))
      ->default_str(fmt::format("{}", fmt::join(all_policies, ",")));
  group.integer("--max-num-seqs", scheduler.max_num_seqs, 1, 1 << 16,
                "requests that run at one time");
  group.integer("--max-num-batched-tokens", scheduler.max_num_batched_tokens, 1, max_count,
                "tokens in a step");
  group.integer("--max-model-len", scheduler.max_model_len, 2, max_count,
                "tokens of prompt and answer");
  group.integer("--block-size", scheduler.block_size, 1, 1'024, "tokens of a KV block");
  group.integer("--kv-cache-blocks", scheduler.kv_cache_blocks, 1, max_count,
                "blocks of the KV cache");
  group.integer("--swap-blocks", scheduler.swap_blocks, 0, max_count,
                "blocks in host memory, for requests that make room");
  group.integer("--stages", options_.cost.stages, 1, 1'024, "of a pipeline; so many micro-batches");
  group.integer("--steps-in-flight", steps_in_flight_, 1, 1'024, "steps planned ahead of results")
      ->default_str("one more than stages");
  group.flag("--no-chunked-prefill", no_chunked_prefill_, "a prompt is read in one step");
  group.flag("--no-prefix-caching", no_prefix_caching_, "prompts share no blocks");
}

void ScheduleArguments::declare_cost(CLI::App& app) {
  Group group(app, "Cost of a step, in microseconds");
  StepCost& cost = options_.cost;
  group.number("--us-per-step", cost.us_per_step, 1e6, "US", "in any case");
  group.number("--us-per-token", cost.us_per_token, 1e6, "US", "for each token computed");
  group.number("--us-per-kv-token", cost.us_per_kv_token, 1e6, "US",
               "for each earlier position that a request reads");
  group.number("--us-per-plan", cost.us_per_plan, 1e6, "US",
               "from plan to step; steps in flight hide it");
}

Result<ScheduleOptions> ScheduleArguments::judge() const {
  ScheduleOptions options = options_;
  for (auto policy = options.policies.begin(); policy != options.policies.end(); ++policy) {
    if (std::find(options.policies.begin(), policy, *policy) != policy) {
      return fail(ErrorCode::invalid_argument, "--policies names {} twice", *policy);
    }
  }
  const std::map<std::string_view, LengthSpread> spreads = {{"fixed", LengthSpread::fixed},
                                                            {"uniform", LengthSpread::uniform},
                                                            {"lognormal", LengthSpread::lognormal}};
  const std::int32_t default_prompts = options.workload.empty() ? 1'000 : 1 << 20;
  options.trace.requests = num_prompts_.value_or(default_prompts);
  options.trace.spread = spreads.at(lengths_);
  options.trace.max_sequence_tokens = options.scheduler.max_model_len;
  options.targets.first_token_us = std::llround(first_token_ms_ * 1e3);
  options.targets.each_token_us = std::llround(each_token_ms_ * 1e3);
  options.targets.seed = options.trace.seed;
  options.scheduler.micro_batches = options.cost.stages;
  options.scheduler.max_steps_in_flight = steps_in_flight_.value_or(options.cost.stages + 1);
  options.scheduler.chunked_prefill = !no_chunked_prefill_;
  options.scheduler.prefix_caching = !no_prefix_caching_;
  return options;
}

}  // namespace troupe
