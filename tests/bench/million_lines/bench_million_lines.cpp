// A million short lines through the real launcher's job, executor and step plane, with a worker
// that has no model: the cost of reading, checking, routing, scheduling, formatting and writing.
// Prints lines/s from the first read of the input to the last sync of the output, start of the
// processes included, and the driver's peak memory, beside their targets.
//
//   bench_million_lines [LINES [FOLDER]]     1000000 lines in a new folder of /tmp

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "actors/engine/engine.hpp"
#include "actors/worker/startup/worker_groups.hpp"
#include "actors/worker/step_plane.hpp"
#include "launcher/job/batch_job.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr double target_lines_per_second = 50'000;
constexpr double target_base_bytes = 150e6;
constexpr double target_bytes_per_line = 16;

/// Replaces Worker in an engine, and answers each step at once.
class WorkerWithoutModel final : public GroupMember {
 public:
  WorkerWithoutModel(ActorContext& context, WorkerSpec spec)
      : GroupMember(context), context_(context), spec_(std::move(spec)) {}
  ~WorkerWithoutModel() override {
    stopping_ = true;
    if (plane_) plane_->interrupt();
    if (loop_.joinable()) loop_.join();
  }

  Result<WorkerReport> load() { return WorkerReport{}; }
  Result<StepAddresses> start(std::int64_t, std::int64_t, const ExecutorPlace& executor) {
    TROUPE_TRY(plane_, StepPlane::open(context_, spec_, seat().epoch, executor));
    loop_ = std::thread([this] {
      while (!stopping_) {
        const Result<void> served = serve_step();
        if (!served.ok() && !stopping_) return context_.exit(served.error().message);
      }
    });
    return plane_->addresses();
  }
  ProcessTelemetry telemetry(bool) { return {}; }

  using Arguments = troupe::Arguments<WorkerSpec>;
  using Methods = GroupMember::Methods::plus<&WorkerWithoutModel::load, &WorkerWithoutModel::start,
                                             &WorkerWithoutModel::telemetry>;
  static constexpr std::string_view actor_type = Worker::actor_type;

 private:
  Result<void> serve_step() {
    Result<StepPlan> plan = plane_->receive(deadline_in(1s));
    if (!plan.ok()) {
      return plan.error().code == ErrorCode::timed_out ? Result<void>()
                                                       : Result<void>(plan.error());
    }
    StepResult result{.step = plan->step, .epoch = plan->epoch, .results = {}};
    for (const SequenceStep& step : plan->steps) {
      if (!step.sample) continue;
      SequenceResult& sampled = result.results.emplace_back();
      sampled.id = step.id;
      sampled.tokens = {7};
    }
    return plane_->answer(result, deadline_in(30s));
  }

  ActorContext& context_;
  WorkerSpec spec_;
  std::optional<StepPlane> plane_;
  std::atomic<bool> stopping_ = false;
  std::thread loop_;
};

void write_input(const std::filesystem::path& path, std::int64_t lines) {
  std::ofstream file(path);
  for (std::int64_t i = 0; i < lines; ++i) {
    file << fmt::format(R"({{"custom_id":"request-{}","method":"POST","url":"/v1/completions",)"
                        R"("body":{{"prompt":[{},{},{},{}],"max_tokens":1}}}})",
                        i, 3 + i % 1000, 3 + i / 1000 % 1000, 5, 6);
    file << '\n';
  }
}

/// Peak memory of this process, the driver; nullopt if the kernel does not report it.
std::optional<double> peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * 1024;
  }
  return std::nullopt;
}

Result<void> run(std::int64_t lines, const std::filesystem::path& folder) {
  TROUPE_TRY(StopSignals signals, StopSignals::block());
  std::printf("writing %lld lines to %s\n", static_cast<long long>(lines), folder.c_str());
  write_input(folder / "in.jsonl", lines);
  const std::string yaml = fmt::format(
      "model: {{path: {}/configs/demo/fable-moe}}\n"
      "engine: {{kv_cache_blocks: 8192, threads_per_worker: 1}}\n"
      "job: {{input: {}, output: {}}}\n",
      TROUPE_SOURCE_DIR, (folder / "in.jsonl").string(), (folder / "out.jsonl").string());
  TROUPE_TRY(Config config, parse_config(yaml, "bench", {}, Purpose::run));
  TROUPE_TRY(const JobPlan plan, plan_job(std::move(config)));
  const RunOptions options;
  const auto began = Clock::now();
  const ExitCode code = run_batch_job(plan, options, signals);
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  if (code != ExitCode::all_answered) {
    return fail(ErrorCode::internal, "the job ended with exit code {}", static_cast<int>(code));
  }
  std::printf("%-28s %10.0f      target at least %.0f\n", "lines/s",
              static_cast<double>(lines) / seconds, target_lines_per_second);
  const double bound = target_base_bytes + target_bytes_per_line * static_cast<double>(lines);
  if (const auto peak = peak_memory_bytes()) {
    std::printf("%-28s %10.1f MB   target at most %.1f MB\n", "driver's memory at its peak",
                *peak / 1e6, bound / 1e6);
  }
  return {};
}

int run_in_folder(int argc, char** argv) {
  const std::int64_t lines = argc > 1 ? std::atoll(argv[1]) : 1'000'000;
  const auto measure = [&]() -> Result<void> {
    if (argc > 2) return run(lines, argv[2]);
    TROUPE_TRY(const auto folder, TemporaryFolder::create("troupe-bench"));
    return run(lines, folder.path());
  };
  const Result<void> done = measure();
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done.ok() ? 0 : 1;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Executor>();
  types.add<troupe::WorkerWithoutModel>();
  troupe::init(argc, argv, types);
  return troupe::run_in_folder(argc, argv);
}
