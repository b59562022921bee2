#include "launcher/cli/eval_options.hpp"

#include <charconv>
#include <cmath>

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {
namespace {

constexpr std::int64_t max_tokens = std::int64_t{1} << 24;

}  // namespace

std::string_view EvalArguments::summary() const {
  return "Judges a model: its perplexity on a text, its answers to multiple-choice tasks, and how "
         "far another one, such as the same model in fewer bits, is from it.";
}

std::string EvalArguments::details() const {
  return R"(Examples:
  launcher eval --model ~/models/Qwen3-0.6B --text wiki.txt
  launcher eval -m Qwen3-0.6B --against Qwen3-0.6B-FP8 --text wiki.txt \
      --max-perplexity-increase 1%
  launcher eval -c cluster.yaml --text wiki.txt \
      --against-set model.dtype=float32
  launcher eval -m Qwen3-0.6B --tasks hellaswag.jsonl --json figures.json
  launcher eval -m Qwen3-0.6B --against Qwen3-0.6B-W4 --text wiki.txt \
      --layers 4 --report figures.html

Figures:
  perplexity   exp of the mean negative log-likelihood (NLL) of the tokens that
               are scored. The text is tokenised once, without special tokens,
               and cut into windows; each is fed alone, from position 0, and
               all its tokens but the first are scored. With a --stride below
               --length, a window scores only those after the one before it.
               What is left at the end, less than a window, is not scored.
  KL           of the second model from the first, KL(second || first), mean
               over all scored positions, over the tokens that are among the
               --top-tokens likeliest of both, and all others as one: a lower
               bound. It is exact, and slow, if that is the size of the
               vocabulary. The figures say which.
  agreement    the share of positions at which both think the same token the
               likeliest
  divergence   the tokens that both generate alike, greedily, after the first
               tokens of a window
  layers       with --layers N: how far the second model's residual stream is
               from the first's after each layer, ||b - a|| / ||a||, over the
               first N windows, computed in float32 on this machine's CPUs
  tasks        a JSON object a line: {"context": TEXT, "choices": [TEXT, ...],
               "answer": INDEX}. Each choice is scored after the context and
               --delimiter; acc is the share of tasks whose answer has the
               largest log-likelihood, acc_norm the same after division by the
               bytes of the choice (the conventions of lm-eval).

Both models run one after the other on the topology of --config and --set; for
the second one, --against-set gives other values to some keys. CPUs compute in
the dtype of model.dtype: --set model.dtype=float32 for the most exact figures.

Exit codes:
  0    judged
  1    the perplexity rises by more than --max-perplexity-increase
  2    refused before anything started
  3    failed
  4    ended by a signal (130: by a second one))";
}

void EvalArguments::declare(CLI::App& app) {
  config_.declare(app);
  app.add_option("--against,-a", against_, "the folder of a second model, with the same vocabulary")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  app.add_option("--against-set", against_sets_,
                 "a key for the second model, as --set; without --against it is the first one")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  const auto file = [&](const char* name, auto& value, const char* what) {
    app.add_option(name, value, what)->type_name("FILE")->expected(1);
  };
  file("--text,-t", options_.text, "UTF-8; gzip and zstd are unpacked");
  file("--tasks", options_.tasks, "multiple-choice tasks, a JSON object a line");
  const auto integer = [&](const char* name, std::int64_t& value, std::int64_t least,
                           const char* what) {
    return app.add_option(name, value, what)
        ->type_name("N")
        ->expected(1)
        ->check(integer_between(least, max_tokens))
        ->capture_default_str();
  };
  integer("--length", options_.windows.length, 2, "tokens of a window");
  integer("--stride", options_.windows.stride, 1,
          "tokens from the beginning of a window to that of the next")
      ->default_str("--length");
  integer("--windows", options_.windows.most, 1, "score only so many windows, the first ones")
      ->default_str("all");
  integer("--top-tokens", options_.top_tokens, 1,
          "compare so many likeliest tokens of each position");
  integer("--greedy-prompts", options_.greedy_prompts, 0, "of the comparison of greedy answers");
  integer("--layers", options_.layer_windows, 0,
          "compare the models layer by layer on so many windows");
  integer("--greedy-tokens", options_.greedy_tokens, 1, "of each of these answers");
  app.add_option("--delimiter", options_.delimiter, "between a task's context and a choice")
      ->type_name("TEXT")
      ->expected(1)
      ->default_str("a space");
  app.add_option("--max-perplexity-increase", max_increase_,
                 "exit 1 if the second model's perplexity is more than this above the first's")
      ->type_name("SHARE")
      ->expected(1);
  file("--json", options_.json, "write all figures there");
  file("--report,--html", options_.html, "write a page with them there");
  app.add_flag("--quiet,-q", options_.quiet, "no progress");
  app.add_option("--log-level", log_level_, "debug, info, warning or error")
      ->type_name("LEVEL")
      ->expected(1)
      ->capture_default_str();
}

Result<EvalOptions> EvalArguments::judge() const {
  EvalOptions options = options_;
  TROUPE_TRY(options.config, config_.judge());
  if (options.text.empty() && options.tasks.empty()) {
    return fail(ErrorCode::invalid_argument,
                "what to judge it by? Give --text FILE or --tasks FILE");
  }
  if (options.windows.stride == 0) options.windows.stride = options.windows.length;
  if (options.windows.stride > options.windows.length) {
    return fail(ErrorCode::invalid_argument,
                "--stride {} is more than --length {}: tokens between windows would not be scored",
                options.windows.stride, options.windows.length);
  }
  TROUPE_TRY(const auto against, given_once("--against", against_));
  if (against || !against_sets_.empty()) {
    options.against = options.config;
    auto& overrides = options.against->overrides;
    if (against) {
      overrides.push_back({fmt::format("--against {}", *against), "model.path", *against});
    }
    for (const std::string& set : against_sets_) {
      TROUPE_TRY(auto parsed, parse_override(set));
      parsed.origin = fmt::format("--against-set {}", set);
      overrides.push_back(std::move(parsed));
    }
  }
  if (options.layer_windows > 0 && (!options.against || options.text.empty())) {
    return fail(ErrorCode::invalid_argument,
                "--layers compares two models: give --against and --text");
  }
  if (!max_increase_.empty()) {
    if (!options.against || options.text.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "--max-perplexity-increase compares two models: give --against and --text");
    }
    TROUPE_TRY(options.max_increase, parse_share(max_increase_));
  }
  const auto level = log::parse_level(log_level_);
  if (!level) {
    return fail(ErrorCode::invalid_argument, "--log-level: {}", level.error().message);
  }
  options.log_level = *level;
  return options;
}

Result<double> parse_share(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  std::string_view number = text;
  if (is_percent) number.remove_suffix(1);
  double value = 0;
  const auto* const end = number.data() + number.size();
  const auto [stopped, error] =
      std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || stopped != end || !std::isfinite(value) || value < 0) {
    return fail(ErrorCode::invalid_argument,
                "--max-perplexity-increase: expected a share such as 1% or 0.01, found {}", text);
  }
  return is_percent ? value / 100 : value;
}

}  // namespace troupe
