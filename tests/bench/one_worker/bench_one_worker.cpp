// One worker with two threads, as a whole engine over real processes, beside its targets and
// llama.cpp's best f32 setting on the same work and kind of machine (measured separately, see
// docs/benchmarks.md). Times exclude start-up, for requests that share no prefix except in
// batch-64. `bench_one_worker FOLDER...`: folders of fable-dense or fable-moe, run from the root of
// the repository; by default the demo's.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "launcher/bench/throughput/bench_client.hpp"
#include "launcher/bench/throughput/workload.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

constexpr int repeats = 7;

/// Figures of one model; 0: not known.
struct Reference {
  const char* model;
  double prefill, decode_64, decode_1, batch_64;                          ///< targets
  double other_prefill, other_decode_64, other_decode_1, other_batch_64;  ///< llama.cpp's
};
constexpr Reference references[] = {
    {"fable-dense", 14000, 8000, 1500, 3.2, 7560, 4380, 1320, 5.9},
    {"fable-moe", 20000, 9000, 2700, 1.7, 12200, 4710, 2720, 3.1},
};

class Measurement {
 public:
  Measurement(EngineSession& session, StopSignals& signals, std::int64_t vocab_size)
      : session_(session), signals_(signals), vocab_size_(vocab_size) {}

  /// Seconds from submission to the last answer; the best of several runs, no prompt twice.
  Result<double> best(std::int64_t count, std::int64_t prompt, std::int64_t answer) {
    double best = 0;
    for (int i = 0; i < repeats; ++i) {
      std::vector<Request> requests;
      for (std::int64_t k = 0; k < count; ++k) {
        requests.push_back(random_request(prompt, answer, ++seed_, vocab_size_));
      }
      TROUPE_TRY(const double seconds, run(std::move(requests)));
      best = i == 0 ? seconds : std::min(best, seconds);
    }
    return best;
  }

  Result<double> run(std::vector<Request> requests) {
    const std::size_t all = requests.size();
    TROUPE_TRY(const auto outcomes, run_requests(session_, std::move(requests), all, signals_));
    double last = 0;
    for (const Outcome& outcome : outcomes) {
      if (!outcome.error.empty()) return fail(ErrorCode::internal, "{}", outcome.error);
      last = std::max(last, outcome.finished);
    }
    return last;
  }

 private:
  EngineSession& session_;
  StopSignals& signals_;
  std::int64_t vocab_size_;
  std::uint64_t seed_ = 0;
};

void print(const char* what, double found, double target, double other, const char* unit,
           bool smaller_is_better) {
  const double ratio = smaller_is_better ? target / found : found / target;
  std::printf("  %-30s %10.1f %-6s %9.1f  %5.2f  %9.1f\n", what, found, unit, target, ratio, other);
  std::fflush(stdout);
}

Result<void> measure(const std::string& folder, StopSignals& signals, const std::string& logs) {
  const std::string name = std::filesystem::path(folder).lexically_normal().filename().string();
  const auto* const found = std::ranges::find(references, name, &Reference::model);
  const Reference reference = found != std::end(references) ? *found : Reference{};
  const std::string yaml = fmt::format(
      "model: {{path: \"{}\"}}\nengine: {{threads_per_worker: 2, max_num_batched_tokens: 2048}}\n",
      folder);
  TROUPE_TRY(const Config config, parse_config(yaml, "bench", {}, Purpose::check));
  TROUPE_TRY(const JobPlan plan, plan_job(config));
  TROUPE_TRY(const auto session, EngineSession::start(plan, logs, log::Level::warning));
  TROUPE_TRY(const EngineInfo info, session->wait_until_ready([] { return true; }));
  (void)info;
  Measurement measurement(*session, signals, plan.model.vocab_size);
  TROUPE_TRY(double seconds, measurement.best(1, 16, 8));  // warm-up

  std::printf("%s\n  %-30s %10s %-6s %9s  %5s  %9s\n", folder.c_str(), "", "found", "", "target",
              "ratio", "llama.cpp");
  TROUPE_TRY(seconds, measurement.best(4, 512, 1));
  print("prefill 4 x 512", 4 * 512 / seconds, reference.prefill, reference.other_prefill, "tok/s",
        false);
  // From the first to the last token: without the prompts.
  TROUPE_TRY(const double prompts, measurement.best(64, 128, 1));
  TROUPE_TRY(seconds, measurement.best(64, 128, 65));
  print("decode 64 at 128 to 192", 64 * 64 / (seconds - prompts), reference.decode_64,
        reference.other_decode_64, "tok/s", false);
  TROUPE_TRY(const double prompt, measurement.best(1, 128, 1));
  TROUPE_TRY(seconds, measurement.best(1, 128, 257));
  print("decode 1", 256 / (seconds - prompt), reference.decode_1, reference.other_decode_1, "tok/s",
        false);
  const BenchOptions batch{.workload = "tests/data/batch/batch-64.jsonl"};
  Config answering = config;
  answering.model.served_model_name = {"fable-moe"};
  TROUPE_TRY(auto workload,
             make_workload(batch, answering, {plan.model.vocab_size, plan.engine.max_model_len}));
  TROUPE_TRY(seconds, measurement.run(std::move(workload.requests)));
  print("batch-64, the first time", seconds, reference.batch_64, reference.other_batch_64, "s",
        true);
  session->shutdown();
  return {};
}

Result<void> run(const std::vector<std::string>& folders) {
  TROUPE_TRY(StopSignals signals, StopSignals::block());
  TROUPE_TRY(const auto logs, TemporaryFolder::create("troupe-bench"));
  for (const std::string& folder : folders) {
    TROUPE_CHECK(measure(folder, signals, logs.path().string()));
  }
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  troupe::add_engine_actors(types);
  troupe::init(argc, argv, types);
  (void)troupe::log::open("bench", "", troupe::log::Level::warning);
  std::vector<std::string> folders(argv + 1, argv + argc);
  if (folders.empty()) folders.emplace_back("configs/demo/fable-moe");
  const auto done = troupe::run(folders);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
