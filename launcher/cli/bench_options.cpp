#include "launcher/cli/bench_options.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <CLI/CLI.hpp>

namespace troupe {
namespace {

using Kind = BenchOptions::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 4> kinds = {{
    {"throughput", Kind::throughput},
    {"latency", Kind::latency},
    {"startup", Kind::startup},
    {"sweep", Kind::sweep},
}};

constexpr std::int64_t longest_length = 1 << 24;

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

/// "1,4,16" in ascending order: requests per second, among them "inf", or whole requests at once.
Result<std::vector<double>> loads(std::string_view option, std::string_view text, bool are_rates) {
  std::vector<double> values;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    more = comma != rest.npos;
    rest.remove_prefix(more ? comma + 1 : rest.size());
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
  for (const auto& [name, value] : kinds) {
    if (value == kind) return name;
  }
  return "unknown";
}

std::optional<Kind> bench_kind(std::string_view name) {
  for (const auto& [known, value] : kinds) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void RawBenchOptions::declare(CLI::App& app) {
  app.add_option("--num-prompts", num_prompts_)->expected(1)->check(CLI::Range(1, 1 << 20));
  app.add_option("--input-len", input_len_)->expected(1);
  app.add_option("--output-len", output_len_)->expected(1);
  app.add_option("--seed", seed_)->expected(1)->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", temperature_)->expected(1)->check(CLI::Range(0.0, 100.0));
  app.add_option("--workload", workload_)->expected(1);
  app.add_option("--json", json_)->expected(1);
  app.add_option("--repeat", repeat_)->expected(1)->check(CLI::Range(1, 1000));
  app.add_option("--rates", rates_)->expected(1);
  app.add_option("--at-once", at_once_)->expected(1);
  app.add_option("--warm-up", warm_up_)->expected(1)->check(CLI::Range(0, 1 << 20));
  app.add_option("--ttft-ms", ttft_ms_)->expected(1)->check(CLI::PositiveNumber);
  app.add_option("--tpot-ms", tpot_ms_)->expected(1)->check(CLI::PositiveNumber);
  app.add_option("--e2e-ms", e2e_ms_)->expected(1)->check(CLI::PositiveNumber);
  app.add_option("--html", html_)->expected(1);
}

Result<void> RawBenchOptions::judge_effects(Kind kind) const {
  const auto no_effect = [](std::string_view option, std::string_view where) {
    return fail(ErrorCode::invalid_argument, "{} has no effect {}", option, where);
  };
  const bool starts = kind == Kind::startup;
  const bool sweep = kind == Kind::sweep;
  if (!workload_.empty() && !input_len_.empty()) return no_effect("--input-len", "on --workload");
  if (!workload_.empty() && !output_len_.empty()) return no_effect("--output-len", "on --workload");
  if (!workload_.empty() && !workload_.ends_with(".csv") && temperature_) {
    return no_effect("--temperature", "on the requests of a batch file");
  }
  if (starts && num_prompts_) return no_effect("--num-prompts", "on bench startup");
  if (starts && !output_len_.empty()) return no_effect("--output-len", "on bench startup");
  const std::string here = fmt::format("on bench {}", to_string(kind));
  if (!starts && !sweep && repeat_) return no_effect("--repeat", here);
  const std::pair<std::string_view, bool> of_sweeps[] = {
      {"--rates", !rates_.empty()},        {"--at-once", !at_once_.empty()},
      {"--warm-up", warm_up_.has_value()}, {"--ttft-ms", ttft_ms_.has_value()},
      {"--tpot-ms", tpot_ms_.has_value()}, {"--e2e-ms", e2e_ms_.has_value()},
      {"--html", !html_.empty()}};
  for (const auto& [name, is_given] : of_sweeps) {
    if (is_given && !sweep) return no_effect(name, here);
  }
  return {};
}

Result<SweepOptions> RawBenchOptions::judge_sweep() const {
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

Result<BenchOptions> RawBenchOptions::judge(Kind kind) const {
  BenchOptions options;
  options.kind = kind;
  TROUPE_CHECK(judge_effects(kind));
  // What the first token waits for is the start, not a long prompt.
  if (kind == Kind::startup) {
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
  options.seed = seed_.value_or(0);
  options.temperature = temperature_.value_or(0.0F);
  if (std::isnan(options.temperature)) {
    return fail(ErrorCode::invalid_argument, "--temperature: expected 0 to 100, found nan");
  }
  options.workload = workload_;
  options.json = json_;
  if (kind == Kind::sweep) {
    TROUPE_TRY(options.sweep, judge_sweep());
  }
  return options;
}

std::string bench_help_text() {
  return R"(launcher bench: measures a model on a topology, with its own processes.

  launcher bench throughput --config FILE [options]
      all requests at once: requests and tokens per second, without start-up
  launcher bench latency --config FILE [options]
      one request after another: time to the first token (TTFT), between
      tokens (TPOT), and to the end; mean, P50, P95 and P99
  launcher bench startup --config FILE [options]
      from the reading of the checkpoint to the engine that serves, and to
      the first token
  launcher bench sweep --config FILE [options]
      one load after another: throughput, latencies, goodput, and the share
      of what this machine can do; a table, --json, and plots with --html
  launcher bench ops --config FILE
      one worker's operations beside what its device could do at most: see
      launcher bench ops --help
  launcher bench collectives --config FILE
      what workers tell each other beside what their links could carry: see
      launcher bench collectives --help
  launcher bench weights --config FILE
      reading a checkpoint into a device's memory, beside what bounds it: see
      launcher bench weights --help
  launcher bench schedule
      scheduling policies, by simulation: see launcher bench schedule --help

Examples
  launcher bench throughput --config configs/one-worker.yaml
  launcher bench latency --config c.yaml --num-prompts 20 --output-len 64
  launcher bench throughput --config c.yaml --workload lengths.csv
  launcher bench startup --config c.yaml --repeat 5 --json startup.json
  launcher bench sweep --config c.yaml --at-once 1,4,16,64 --html sweep.html
  launcher bench sweep --config c.yaml --rates 1,2,4,inf --ttft-ms 500
A model of which there is only its config.json:
  launcher bench throughput --config c.yaml --set model.load_format=dummy

Random requests: token ids, and no end but the wanted length
  --num-prompts N     how many; default 64
  --input-len A[:B]   tokens of a prompt, from A to B; default 512, 16 in
                      startup
  --output-len C[:D]  tokens of an answer; default 128
  --seed S            other ids and lengths; default 0
  --temperature T     how their tokens are chosen; default 0, greedy

Requests of a file
  --workload FILE     .csv: a line "prompt_tokens,max_tokens" above random
                      requests of these lengths; .jsonl: a batch file
  --num-prompts N     the first N of them

Loads of bench sweep
  --at-once LIST      so many requests at any time, e.g. 1,4,16,64 (default)
  --rates LIST        so many requests a second arrive at random times
                      (Poisson), e.g. 0.5,2,8,inf; inf is all at once
  --num-prompts N     of each run
  --repeat N          runs of each load; default 3
  --warm-up N         requests before the first that are not counted; default 4
  --ttft-ms, --tpot-ms, --e2e-ms MS
                      an answer within all that are given counts for goodput;
                      without any, those of slo: in the YAML
  --html FILE         the plots, one page that needs nothing else
Every run has ids of its own, so that nothing is found in the prefix cache, but
for the requests of a .jsonl.

Other options
  --config FILE, --set KEY=VALUE, --log-level LEVEL, -q: as of launcher;
                      job.input and job.output are not looked at
  --json FILE         the figures and what they were measured with
  --repeat N          starts of bench startup; default 3

A first short request is not counted. Figures go to stdout. Exit codes: 0
measured; 1 measured, but requests failed; 2 refused before anything
started; 3 failed; 4 ended by a signal.
)";
}

}  // namespace troupe
