#include "launcher/cli/bench_options.hpp"

#include <array>
#include <charconv>
#include <utility>

#include <CLI/CLI.hpp>

namespace troupe {
namespace {

using Kind = BenchOptions::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 3> kinds = {{
    {"throughput", Kind::throughput},
    {"latency", Kind::latency},
    {"startup", Kind::startup},
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
  app.add_option("--workload", workload_)->expected(1);
  app.add_option("--json", json_)->expected(1);
  app.add_option("--repeat", repeat_)->expected(1)->check(CLI::Range(1, 1000));
}

Result<BenchOptions> RawBenchOptions::judge(Kind kind) const {
  BenchOptions options;
  options.kind = kind;
  const bool starts = kind == Kind::startup;
  // What the first token waits for is the start, not a long prompt.
  if (starts) {
    options.input_len = {16, 16};
    options.output_len = {1, 1};
  }
  if (!input_len_.empty()) {
    TROUPE_TRY(options.input_len, length_range("--input-len", input_len_));
  }
  if (!output_len_.empty()) {
    TROUPE_TRY(options.output_len, length_range("--output-len", output_len_));
  }
  const auto no_effect = [](std::string_view option, std::string_view where) {
    return fail(ErrorCode::invalid_argument, "{} has no effect {}", option, where);
  };
  if (!workload_.empty() && !input_len_.empty()) return no_effect("--input-len", "on --workload");
  if (!workload_.empty() && !output_len_.empty()) return no_effect("--output-len", "on --workload");
  if (starts && num_prompts_) return no_effect("--num-prompts", "on bench startup");
  if (starts && !output_len_.empty()) return no_effect("--output-len", "on bench startup");
  if (!starts && repeat_) {
    return no_effect("--repeat", fmt::format("on bench {}", to_string(kind)));
  }
  options.num_prompts = num_prompts_;
  options.repeat = repeat_.value_or(options.repeat);
  options.seed = seed_.value_or(0);
  options.workload = workload_;
  options.json = json_;
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
  launcher bench schedule
      scheduling policies, by simulation: see launcher bench schedule --help

Examples
  launcher bench throughput --config configs/one-worker.yaml
  launcher bench latency --config c.yaml --num-prompts 20 --output-len 64
  launcher bench throughput --config c.yaml --workload lengths.csv
  launcher bench startup --config c.yaml --repeat 5 --json startup.json
A model of which there is only its config.json:
  launcher bench throughput --config c.yaml --set model.load_format=dummy

Random requests: token ids, greedy, and no end but the wanted length
  --num-prompts N     how many; default 64
  --input-len A[:B]   tokens of a prompt, from A to B; default 512, 16 in
                      startup
  --output-len C[:D]  tokens of an answer; default 128
  --seed S            other ids and lengths; default 0

Requests of a file
  --workload FILE     .csv: a line "prompt_tokens,max_tokens" above random
                      requests of these lengths; .jsonl: a batch file
  --num-prompts N     the first N of them

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
