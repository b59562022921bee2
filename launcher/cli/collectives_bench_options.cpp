#include "launcher/cli/collectives_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {
namespace {

constexpr std::int64_t bytes_of_word = 8;  // every message consists of such words
constexpr std::int64_t max_bytes = std::int64_t{1} << 30;

}  // namespace

std::string_view CollectivesBenchArguments::summary() const {
  return "What workers tell each other beside what their links could carry.";
}

std::string CollectivesBenchArguments::details() const {
  return R"(Times what the workers of the topology would tell each other, on its device:
sums, gathers and exchanges within a tensor group, exchanges between the ranks
that experts are dealt to, messages from stage to stage. Starts no engine and
reads no weights; a thread stands for each rank, and one group is timed at a
time.

The bus bandwidth is what a ring would have to carry of the bytes: of a sum 2
(n - 1) / n of them, of what is only moved (n - 1) / n, of a message all. It is
set beside what one large message between two ranks reaches on GPUs, and a copy
of memory on a CPU. On GPUs the table has NCCL's own sums of the same run.)";
}

void CollectivesBenchArguments::declare(CLI::App& app) {
  common_.declare(app);
  app.add_option("--bytes", options_.bytes, "sizes of messages, multiples of 8")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(integer_between(bytes_of_word, max_bytes))
      ->default_str("8,64,512,4096 and on to 67108864");
  app.add_option("--seconds", options_.seconds, "about how long each is timed for")
      ->type_name("S")
      ->check(number_between(0.001, 60))
      ->capture_default_str();
}

Result<CollectivesBenchOptions> CollectivesBenchArguments::judge() const {
  CollectivesBenchOptions options = options_;
  TROUPE_TRY(static_cast<PartBenchOptions&>(options), common_.judge());
  const auto odd = std::ranges::find_if(
      options.bytes, [](std::int64_t bytes) { return bytes % bytes_of_word != 0; });
  if (odd != options.bytes.end()) {
    return fail(ErrorCode::invalid_argument, "--bytes {}: expected a multiple of {}", *odd,
                bytes_of_word);
  }
  std::ranges::sort(options.bytes);
  const auto same = std::ranges::unique(options.bytes);
  options.bytes.erase(same.begin(), same.end());
  return options;
}

}  // namespace troupe
