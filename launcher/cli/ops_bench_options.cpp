#include "launcher/cli/ops_bench_options.hpp"

#include <algorithm>
#include <charconv>

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {
namespace {

/// Reads a positive number of T from the front of `text`.
template <class T>
bool take_number(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() && value > 0;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

Result<BenchedAttention> parse_benched_attention(const std::string& text) {
  BenchedAttention attention;
  std::string_view rest = text;
  bool good = take_number(rest, attention.heads) && take(rest, "/") &&
              take_number(rest, attention.kv_heads) && take(rest, "x") &&
              take_number(rest, attention.head_dim);
  while (good && !rest.empty()) {
    if (take(rest, ":window=")) {
      good = take_number(rest, attention.window);
    } else if (take(rest, ":cap=")) {
      good = take_number(rest, attention.soft_cap);
    } else {
      good = take(rest, ":sinks");
      attention.has_sinks = true;
    }
  }
  if (good) return attention;
  return fail(ErrorCode::invalid_argument,
              "--attention: expected heads/KV headsxhead size, as 32/8x128, and then any of "
              ":window=4096, :cap=50 and :sinks, found {}",
              text);
}

std::string_view OpsBenchArguments::summary() const {
  return "One worker's operations beside what its device could do at most.";
}

std::string OpsBenchArguments::details() const {
  return R"(Times the operations of one worker of the model on its device, on random
numbers, each beside what the device could do at most: its bytes at the speed
of a large copy, or its multiply-adds at that of a large product, whichever
takes longer. Starts no engine and reads no weights.

For as many rows as sequences fit in a step (engine.max_num_seqs) the table
ends with a decode step of them: the sum of these least times (the roofline),
and of the times measured. Rows beyond are prefill.)";
}

void OpsBenchArguments::declare(CLI::App& app) {
  common_.declare(app);
  app.add_option("--rows", options_.rows, "tokens of a pass")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(integer_between(1, 1 << 20))
      ->default_str("1,8,64,256,4096");
  app.add_option("--context", options_.context, "tokens of each sequence")
      ->type_name("N")
      ->check(integer_between(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--prefix", options_.prefix,
                 "tokens of --context with which all sequences begin; attention of decode steps "
                 "is timed with and without reading them once for all")
      ->type_name("N")
      ->check(integer_between(1, 1 << 24));
  app.add_option("--attention", attention_,
                 "times attention of these shapes alone, as 64/8x64:window=128:sinks")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--seconds", options_.seconds, "about how long each operation is timed for")
      ->type_name("S")
      ->check(number_between(0.001, 60))
      ->capture_default_str();
}

Result<OpsBenchOptions> OpsBenchArguments::judge() const {
  OpsBenchOptions options = options_;
  TROUPE_TRY(static_cast<PartBenchOptions&>(options), common_.judge());
  for (const std::string& text : attention_) {
    TROUPE_TRY(const BenchedAttention attention, parse_benched_attention(text));
    options.attention.push_back(attention);
  }
  if (options.prefix >= options.context) {
    return fail(ErrorCode::invalid_argument,
                "--prefix: {} tokens of a context of {}; the last token is each sequence's own",
                options.prefix, options.context);
  }
  std::ranges::sort(options.rows);
  const auto same = std::ranges::unique(options.rows);
  options.rows.erase(same.begin(), same.end());
  return options;
}

}  // namespace troupe
