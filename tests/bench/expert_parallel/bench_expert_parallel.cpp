// A model on two ranks (threads), its experts split by inner size (tensor parallelism alone) or
// distributed (expert parallelism): tokens per second of prefill and decode (of one replica), the
// share of the time that rank 0 spends in collectives, including waits for the slower rank, and the
// router's imbalance: rows for the busier rank's experts, over the mean. Best of several rounds.
// `bench_expert_parallel [model folder]`, in the root of the repository by default.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "parallel/collectives/forwarding_collectives.hpp"
#include "tests/golden/support/mesh_ranks.hpp"

namespace troupe::golden {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int rounds = 5;
constexpr std::int32_t prompt_tokens = 512;
constexpr int prompts = 8;
constexpr int decoding = 64;
constexpr int decode_steps = 64;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The collectives' observations on both ranks.
struct Observed {
  double seconds_of_rank_0 = 0.0;
  std::array<std::vector<std::int64_t>, 2> received;  ///< rows of each all-to-all, by rank
};

/// The busier rank's rows over the mean, for all exchanges.
double imbalance(const Observed& observed) {
  double busier = 0.0;
  double mean = 0.0;
  // An exchange is three all-to-alls: counts, rows to the experts, rows back.
  for (std::size_t i = 1; i < observed.received[0].size(); i += 3) {
    const auto a = static_cast<double>(observed.received[0][i]);
    const auto b = static_cast<double>(observed.received[1][i]);
    busier += std::max(a, b);
    mean += (a + b) / 2;
  }
  return mean == 0.0 ? 1.0 : busier / mean;
}

/// Times the calls that wait for other ranks.
class TimedCollectives final : public ForwardingCollectives {
 public:
  TimedCollectives(std::unique_ptr<Collectives> inner, Observed& observed)
      : ForwardingCollectives(std::move(inner)), observed_(observed) {}

  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override {
    return timed([&] { return ForwardingCollectives::all_reduce_tree(partial, sum); });
  }
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override {
    return timed(
        [&] { return ForwardingCollectives::reduce_scatter_tree(partial, sum, rows_per_rank); });
  }
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override {
    return timed([&] { return ForwardingCollectives::all_gather(part, all, rows_per_rank); });
  }
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override {
    observed_.received[static_cast<std::size_t>(rank())].push_back(receive[0]);
    return timed(
        [&] { return ForwardingCollectives::all_to_all(send, send_rows, receive, receive_rows); });
  }

 private:
  template <class Call>
  Result<void> timed(Call&& call) {
    const auto start = Clock::now();
    Result<void> done = call();
    if (rank() == 0) observed_.seconds_of_rank_0 += seconds_since(start);
    return done;
  }

  Observed& observed_;
};

/// What rank 0 measured of one phase, best round.
struct Figures {
  double tokens_per_second = 0.0;
  double in_collectives = 0.0;  ///< share of the time
};

template <class Phase>
Result<Figures> best_of(double& collectives_seconds, int tokens, Phase&& phase) {
  Figures best;
  for (int round = 0; round < rounds; ++round) {
    const double before = collectives_seconds;
    const auto start = Clock::now();
    TROUPE_CHECK(phase());
    const double seconds = seconds_since(start);
    if (tokens / seconds <= best.tokens_per_second) continue;
    best = {tokens / seconds, (collectives_seconds - before) / seconds};
  }
  return best;
}

std::vector<std::int32_t> made_up_tokens(int seed, int count, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  std::uint64_t state = static_cast<std::uint64_t>(seed) * 2654435761u + 1;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    tokens.push_back(static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

Result<void> prefill(Runner& runner) {
  for (int i = 0; i < prompts; ++i) {
    Sequence sequence{made_up_tokens(i, prompt_tokens, runner.config().vocab_size)};
    const Share share{&sequence, prompt_tokens, 1};
    TROUPE_TRY([[maybe_unused]] const Tensor logits, runner.pass({&share, 1}));
    runner.release(sequence);
  }
  return {};
}

Result<void> decode(Runner& runner, std::vector<Sequence>& sequences) {
  std::vector<Share> shares;
  for (Sequence& sequence : sequences) shares.push_back({&sequence, 1, 1});
  for (int step = 0; step < decode_steps; ++step) {
    TROUPE_TRY([[maybe_unused]] const Tensor logits, runner.pass(shares));
  }
  for (Sequence& sequence : sequences) runner.release(sequence);
  return {};
}

struct Way {
  const char* name;
  MeshRanks ranks;
};

Result<void> measure(const std::string& folder, Way way) {
  Observed observed;
  if (way.ranks.shape.world_size() > 1) {
    way.ranks.wrap = [&](std::unique_ptr<Collectives> inner) {
      return std::make_unique<TimedCollectives>(std::move(inner), observed);
    };
  }
  Figures prefilled;
  Figures decoded;
  const auto body = [&](Runner& runner, int rank) -> Result<std::vector<float>> {
    double elsewhere = 0.0;
    double& seconds = rank == 0 ? observed.seconds_of_rank_0 : elsewhere;
    TROUPE_TRY(const Figures first,
               best_of(seconds, prompts * prompt_tokens, [&] { return prefill(runner); }));
    TROUPE_TRY(
        const Figures second, best_of(seconds, decoding * decode_steps, [&] {
          std::vector<Sequence> sequences;
          for (int i = 0; i < decoding; ++i) {
            sequences.push_back({made_up_tokens(i, decode_steps, runner.config().vocab_size)});
          }
          return decode(runner, sequences);
        }));
    if (rank == 0) {
      prefilled = first;
      decoded = second;
    }
    return std::vector<float>();
  };
  TROUPE_TRY([[maybe_unused]] const auto ran, run_ranks(folder, DType::f32, way.ranks, body));
  fmt::print("  {:16} {:12.0f} {:10.0f} % {:12.0f} {:10.0f} % {:10.2f}\n", way.name,
             prefilled.tokens_per_second, 100 * prefilled.in_collectives, decoded.tokens_per_second,
             100 * decoded.in_collectives, imbalance(observed));
  return {};
}

Result<void> run(const std::string& folder) {
  const Way ways[] = {
      {"one rank", {}},
      {"tp2", {.shape = {.tensor = 2}}},
      {"tp2+ep2", {.shape = {.tensor = 2}, .expert_parallel_size = 2}},
      {"tp2+sp", {.shape = {.tensor = 2}, .sequence_parallel = true}},
      {"tp2+ep2+sp",
       {.shape = {.tensor = 2}, .expert_parallel_size = 2, .sequence_parallel = true}},
      {"dp2+ep2", {.shape = {.data = 2}, .expert_parallel_size = 2}},
  };
  fmt::print("  {:16} {:>12} {:>12} {:>12} {:>12} {:>10}\n", "", "prefill/s", "collectives",
             "decode/s", "collectives", "imbalance");
  for (const Way& way : ways) TROUPE_CHECK(measure(folder, way));
  return {};
}

}  // namespace
}  // namespace troupe::golden

int main(int argc, char** argv) {
  const auto done = troupe::golden::run(argc > 1 ? argv[1] : "configs/demo/fable-moe");
  if (done.ok()) return 0;
  fmt::print(stderr, "{}\n", done.error().message);
  return 1;
}
