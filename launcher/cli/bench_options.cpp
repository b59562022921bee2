#include "launcher/cli/bench_options.hpp"

#include <charconv>
#include <cmath>
#include <limits>

#include <CLI/CLI.hpp>

#include "launcher/cli/comma_separated.hpp"
#include "launcher/cli/number_checks.hpp"

namespace troupe {
namespace {

using Kind = BenchOptions::Kind;

constexpr std::int64_t longest_length = 1 << 24;

constexpr const char* fault_details =
    R"(For your own cluster, before you trust it with a long batch. The requests (by
default random ones, every second one sampled with a seed of its own, the
others greedy) are answered once undisturbed, and then again and again. When
the job computes, and a random time after the step that followed the fault
before, an actor on the victim's node makes the next fault:

  worker    kills a worker (SIGKILL)
  executor  kills an executor
  stop      stops a worker (SIGSTOP), which then answers no heartbeats
  agent     kills a node's agent; what it has started ends with it
  node      kills a node's agent and all of its processes at once
  freeze    stops all of these, and lets them go on after --outage seconds
  link      takes --link-device down for --outage seconds: needs root on the
            nodes and the program ip; their IPv4 routes are put back

A line tells of each fault when its loss was noticed and when the next step was
done, both counted from the fault. restart.max does not bound them. A process
that ends again and again within 60 s of its start is started at most every 0.1,
0.2, ... 10 s: of faults that are rarer none waits for that.
With cluster.launch: join nothing starts a lost agent again, so by default no
node is taken there; nor is the one node of a job on this machine.

Examples:
  launcher bench faults --config configs/tensor-parallel-2.yaml
  launcher bench faults --config two-hosts.yaml --kinds worker,node --count 30
  launcher bench faults --config c.yaml --workload in.jsonl --interval 60

job.input and job.output of the YAML are not looked at. Faults go to stderr,
figures to stdout. Exit codes: 0 all answers are the bytes of the undisturbed
run; 1 some are not; 2 refused before anything started; 3 failed, as when the
job did not recover; 4 ended by a signal. In the last two cases the figures are
of what was measured by then.)";

std::optional<std::int64_t> length(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value >= 1 && value <= longest_length ? std::optional(value) : std::nullopt;
}

/// "A" or "A:B".
Result<LengthRange> length_range(std::string_view option, std::string_view text) {
  const auto colon = text.find(':');
  const auto shortest = length(text.substr(0, colon));
  const auto longest = colon == text.npos ? shortest : length(text.substr(colon + 1));
  if (shortest && longest && *shortest <= *longest) return LengthRange{*shortest, *longest};
  return fail(ErrorCode::invalid_argument,
              "{}: expected a number of tokens, or A:B with 1 <= A <= B <= {}, found {}", option,
              longest_length, text);
}

/// "1,4,16" in ascending order: requests per second, possibly "inf", or whole requests at once.
Result<std::vector<double>> loads(std::string_view option, std::string_view text, bool are_rates) {
  std::vector<double> values;
  for (const std::string_view word : comma_separated(text)) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = are_rates || (std::isfinite(value) && value == std::floor(value));
    const bool in_range = value >= (are_rates ? 1e-3 : 1) && (value <= 1e6 || std::isinf(value));
    if (error != std::errc() || end != word.data() + word.size() || !whole || !in_range ||
        (!values.empty() && value <= values.back())) {
      return fail(ErrorCode::invalid_argument,
                  "{}: expected ascending numbers such as {}, found {}", option,
                  are_rates ? "0.5,2,8,inf" : "1,4,16", text);
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::throughput:
      return "throughput";
    case Kind::latency:
      return "latency";
    case Kind::startup:
      return "startup";
    case Kind::sweep:
      return "sweep";
    case Kind::faults:
      return "faults";
  }
  return "unknown";
}

std::string_view BenchArguments::summary() const {
  switch (kind_) {
    case Kind::throughput:
      return "All requests at once: requests and tokens per second, without start-up.";
    case Kind::latency:
      return "One request after another: time to the first token (TTFT), between tokens (TPOT), "
             "and "
             "to the end; mean, P50, P95 and P99.";
    case Kind::startup:
      return "From the reading of the checkpoint to the engine that serves, and to the first "
             "token.";
    case Kind::sweep:
      return "One load after another: throughput, latencies, goodput, and the share of what this "
             "machine can do; a table, --json, and plots with --html.";
    case Kind::faults:
      return "Breaks a batch: kills and stops processes and nodes at random moments, times the "
             "recoveries, and compares every answer with those of an undisturbed run.";
  }
  return "";
}

std::string BenchArguments::details() const {
  std::string text;
  if (kind_ == Kind::sweep) {
    text = R"(Every run has ids of its own, so that nothing is found in the prefix cache, but
for the requests of a .jsonl. A rate of inf is all requests at once.

Examples:
  launcher bench sweep --config c.yaml --at-once 1,4,16,64 --html sweep.html
  launcher bench sweep --config c.yaml --rates 1,2,4,inf --ttft-ms 500

)";
  } else if (kind_ == Kind::faults) {
    text = fault_details;
  } else {
    text = fmt::format("Example:\n  launcher bench {} --config c.yaml {}\n\n", to_string(kind_),
                       kind_ == Kind::startup ? "--repeat 5 --json startup.json"
                                              : "--num-prompts 20 --output-len 64");
  }
  if (kind_ == Kind::faults) return text;
  return text + R"(job.input and job.output of the YAML are not looked at. A first short request is
not counted. Figures go to stdout. Exit codes: 0 measured; 1 measured, but
requests failed; 2 refused before anything started; 3 failed; 4 ended by a
signal.)";
}

void BenchArguments::declare(CLI::App& app) {
  config_.declare(app);
  declare_requests(app);
  if (kind_ == Kind::sweep) declare_loads(app);
  if (kind_ == Kind::faults) faults_.declare(app);
  if (kind_ == Kind::startup || kind_ == Kind::sweep) {
    app.add_option("--repeat", repeat_,
                   kind_ == Kind::startup ? "how many starts" : "runs of each load")
        ->type_name("N")
        ->expected(1)
        ->check(integer_between(1, 1000))
        ->default_str("3");
  }
  app.add_option("--json", json_, "the figures and what they were measured with")
      ->type_name("FILE")
      ->expected(1);
  app.add_flag("--quiet,-q", quiet_, "no progress; errors are still told");
  app.add_option("--log-level", log_level_, "debug, info, warning or error")
      ->type_name("LEVEL")
      ->expected(1)
      ->capture_default_str();
}

void BenchArguments::declare_requests(CLI::App& app) {
  const bool starts = kind_ == Kind::startup;
  if (!starts) {
    app.add_option("--num-prompts", num_prompts_,
                   "how many requests; of --workload the first so many, by default all")
        ->type_name("N")
        ->expected(1)
        ->check(integer_between(1, 1 << 20))
        ->default_str("64");
  }
  app.add_option("--input-len", input_len_, "tokens of a random prompt, from A to B")
      ->type_name("A[:B]")
      ->expected(1)
      ->default_str(starts ? "16" : "512");
  if (!starts) {
    app.add_option("--output-len", output_len_, "tokens of an answer to a random prompt")
        ->type_name("A[:B]")
        ->expected(1)
        ->default_str("128");
  }
  app.add_option("--seed", seed_,
                 kind_ == Kind::faults ? "other random ids, lengths and faults"
                                       : "other random ids and lengths")
      ->type_name("S")
      ->expected(1)
      ->check(integer_between(0, std::numeric_limits<std::int64_t>::max()))
      ->default_str("0");
  app.add_option("--temperature", temperature_,
                 kind_ == Kind::faults ? "how tokens of every second random request are chosen"
                                       : "how tokens of random requests are chosen; 0: greedy")
      ->type_name("T")
      ->expected(1)
      ->check(number_between(0, 100))
      ->default_str(kind_ == Kind::faults ? "1" : "0");
  app.add_option("--workload", workload_,
                 ".csv: a line \"prompt_tokens,max_tokens\" above random requests of these "
                 "lengths; .jsonl: a batch file")
      ->type_name("FILE")
      ->expected(1);
}

void BenchArguments::declare_loads(CLI::App& app) {
  app.add_option("--at-once", at_once_, "loads: so many requests at any time")
      ->type_name("LIST")
      ->expected(1)
      ->default_str("1,4,16,64");
  app.add_option("--rates", rates_,
                 "loads: so many requests a second arrive at random times (Poisson), e.g. "
                 "0.5,2,8,inf")
      ->type_name("LIST")
      ->expected(1);
  app.add_option("--warm-up", warm_up_, "requests before the first that are not counted")
      ->type_name("N")
      ->expected(1)
      ->check(integer_between(0, 1 << 20))
      ->default_str("4");
  const auto limit = [&](const char* name, std::optional<double>& value, const char* what) {
    app.add_option(name, value,
                   fmt::format("an answer whose {} is within this, and all other limits given, "
                               "counts for goodput; without any, slo: of the YAML",
                               what))
        ->type_name("MS")
        ->expected(1)
        ->check(number_between(1e-6, 1e12));
  };
  limit("--ttft-ms", ttft_ms_, "time to the first token");
  limit("--tpot-ms", tpot_ms_, "time between tokens");
  limit("--e2e-ms", e2e_ms_, "time to the end");
  app.add_option("--html", html_, "the plots, one page that needs nothing else")
      ->type_name("FILE")
      ->expected(1);
}

Result<void> BenchArguments::judge_effects() const {
  const auto no_effect = [](std::string_view option, std::string_view where) {
    return fail(ErrorCode::invalid_argument, "{} has no effect {}", option, where);
  };
  if (!workload_.empty() && !input_len_.empty()) return no_effect("--input-len", "on --workload");
  if (!workload_.empty() && !output_len_.empty()) return no_effect("--output-len", "on --workload");
  if (!workload_.empty() && !workload_.ends_with(".csv") && temperature_) {
    return no_effect("--temperature", "on the requests of a batch file");
  }
  return {};
}

Result<SweepOptions> BenchArguments::judge_sweep() const {
  SweepOptions sweep;
  if (!rates_.empty() && !at_once_.empty()) {
    return fail(ErrorCode::invalid_argument, "give --rates or --at-once, not both");
  }
  sweep.by_rate = !rates_.empty();
  if (sweep.by_rate) {
    TROUPE_TRY(sweep.loads, loads("--rates", rates_, true));
  } else if (!at_once_.empty()) {
    TROUPE_TRY(sweep.loads, loads("--at-once", at_once_, false));
  }
  sweep.warm_up = warm_up_.value_or(sweep.warm_up);
  sweep.ttft_ms = ttft_ms_;
  sweep.tpot_ms = tpot_ms_;
  sweep.e2e_ms = e2e_ms_;
  sweep.html = html_;
  return sweep;
}

Result<BenchOptions> BenchArguments::judge() const {
  BenchOptions options;
  options.kind = kind_;
  TROUPE_TRY(options.config, config_.judge());
  TROUPE_CHECK(judge_effects());
  const auto level = log::parse_level(log_level_);
  if (!level) {
    return fail(ErrorCode::invalid_argument, "--log-level: {}", level.error().message);
  }
  options.log_level = *level;
  options.quiet = quiet_;
  // The first token should wait for the start, not for a long prompt.
  if (kind_ == Kind::startup) {
    options.input_len = {16, 16};
    options.output_len = {1, 1};
  }
  if (!input_len_.empty()) {
    TROUPE_TRY(options.input_len, length_range("--input-len", input_len_));
  }
  if (!output_len_.empty()) {
    TROUPE_TRY(options.output_len, length_range("--output-len", output_len_));
  }
  options.num_prompts = num_prompts_;
  options.repeat = repeat_.value_or(options.repeat);
  options.seed = seed_;
  options.temperature = temperature_.value_or(kind_ == Kind::faults ? 1.0F : 0.0F);
  options.workload = workload_;
  options.json = json_;
  if (kind_ == Kind::sweep) {
    TROUPE_TRY(options.sweep, judge_sweep());
  }
  if (kind_ == Kind::faults) {
    TROUPE_TRY(options.faults, faults_.judge());
  }
  return options;
}

}  // namespace troupe
