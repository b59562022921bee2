#include "launcher/bench/bench.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/bench/bench_client.hpp"
#include "launcher/bench/bench_report.hpp"
#include "launcher/bench/figures.hpp"
#include "launcher/bench/workload.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = BenchOptions::Kind;

constexpr std::int64_t warm_up_prompt = 16;
constexpr std::int64_t warm_up_answer = 2;
/// Not a seed of a measured request, so that no prefix of one is known beforehand.
constexpr std::uint64_t warm_up_seed = 0x5eed0fULL << 40;

/// A folder for logs, removed with its files unless it is to be kept.
class LogFolder {
 public:
  static Result<LogFolder> create() {
    std::error_code problem;
    auto pattern = (std::filesystem::temp_directory_path(problem) / "troupe-bench.XXXXXX").string();
    if (problem || ::mkdtemp(pattern.data()) == nullptr) {
      return fail(ErrorCode::io, "cannot make a folder for logs: {}", pattern);
    }
    return LogFolder(std::move(pattern));
  }
  LogFolder(LogFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  LogFolder& operator=(LogFolder&&) = delete;
  ~LogFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  /// Leaves the folder where it is.
  std::string keep() { return std::exchange(path_, {}); }

 private:
  explicit LogFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// One benchmark: what it is measured with, and what came of it.
class Bench {
 public:
  Bench(const Config& config, const CommandLine& line, StopSignals& signals, LogFolder& logs)
      : config_(config), line_(line), signals_(signals), logs_(logs) {}

  /// Errors of these are refusals: nothing was started.
  Result<void> prepare() {
    TROUPE_TRY(plan_, plan_job(config_));
    TROUPE_TRY(workload_, make_workload(line_.bench, config_,
                                        {plan_.model.vocab_size, plan_.engine.max_model_len}));
    if (!line_.bench.json.empty() && !std::ofstream(line_.bench.json, std::ios::app)) {
      return fail(ErrorCode::io, "cannot write --json {}", line_.bench.json);
    }
    return {};
  }

  Result<ExitCode> measure() {
    if (line_.bench.kind == Kind::startup) return measure_startup();
    TROUPE_TRY(const auto session, start(plan_));
    std::vector<Request> warm_up;
    warm_up.push_back(
        random_request(warm_up_prompt, warm_up_answer, warm_up_seed, plan_.model.vocab_size));
    TROUPE_CHECK(run_requests(*session, std::move(warm_up), 1, signals_));
    const std::size_t at_once =
        line_.bench.kind == Kind::latency ? 1 : request_window(plan_.engine);
    TROUPE_TRY(const auto outcomes, run_requests(*session, workload_.requests, at_once, signals_));
    session->shutdown();
    for (const Outcome& outcome : outcomes) {
      if (outcome.error.empty()) continue;
      std::fprintf(stderr, "launcher: a request failed: %s\n", outcome.error.c_str());
      break;
    }
    if (line_.bench.kind == Kind::latency) return tell(latency_of(outcomes));
    return tell(throughput_of(outcomes));
  }

 private:
  Result<std::unique_ptr<EngineSession>> start(const JobPlan& plan) {
    TROUPE_TRY(auto session, EngineSession::start(plan, logs_.path(), line_.log_level));
    TROUPE_CHECK(session->wait_until_ready([this] { return signals_.count() == 0; }));
    return session;
  }

  Result<ExitCode> measure_startup() {
    workload_.requests.resize(1);
    workload_.requests.front().max_tokens = 1;
    std::vector<StartupFigures> starts;
    for (std::int64_t i = 0; i < line_.bench.repeat; ++i) {
      const auto began = Clock::now();
      const auto seconds = [&] {
        return std::chrono::duration<double>(Clock::now() - began).count();
      };
      TROUPE_TRY(const JobPlan plan, plan_job(config_));
      TROUPE_TRY(const auto session, start(plan));
      StartupFigures figures{.ready = seconds()};
      TROUPE_TRY(const auto outcomes, run_requests(*session, workload_.requests, 1, signals_));
      if (!outcomes.front().error.empty()) {
        return fail(ErrorCode::invalid_argument, "the request failed: {}", outcomes.front().error);
      }
      figures.first_token = seconds();
      starts.push_back(figures);
      session->shutdown();
    }
    return tell(std::span<const StartupFigures>(starts));
  }

  Result<void> write_json(const nlohmann::ordered_json& figures, const BenchSubject& subject) {
    if (line_.bench.json.empty()) return {};
    auto json = bench_subject_json(subject, plan_);
    json.update(figures);
    std::ofstream file(line_.bench.json, std::ios::trunc);
    // Paths may hold bytes that are no text.
    file << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    file.close();
    if (file) return {};
    return fail(ErrorCode::io, "cannot write --json {}", line_.bench.json);
  }

  template <class Figures>
  Result<ExitCode> tell(const Figures& figures) {
    const BenchSubject subject{std::string(to_string(line_.bench.kind)), workload_.description,
                               workload_.requests.size()};
    const std::string text = bench_heading(subject, plan_) + to_table(figures);
    std::fputs(text.c_str(), stdout);
    TROUPE_CHECK(write_json(to_json(figures), subject));
    if constexpr (requires { figures.failed; }) {
      if (figures.failed > 0) return ExitCode::finished_with_errors;
    }
    return ExitCode::all_answered;
  }

  const Config& config_;
  const CommandLine& line_;
  StopSignals& signals_;
  LogFolder& logs_;
  JobPlan plan_;
  Workload workload_;
};

void say(const std::string& text) { std::fprintf(stderr, "launcher: %s\n", text.c_str()); }

}  // namespace

ExitCode run_bench(const Config& config, const CommandLine& line, StopSignals& signals) {
  auto logs = LogFolder::create();
  if (!logs.ok()) {
    say(logs.error().message);
    return ExitCode::refused;
  }
  Bench bench(config, line, signals, *logs);
  auto prepared = bench.prepare();
  if (prepared.ok())
    prepared = log::open("launcher", logs->path() + "/launcher.log", line.log_level);
  if (!prepared.ok()) {
    say(prepared.error().message);
    return ExitCode::refused;
  }
  const auto measured = bench.measure();
  if (measured.ok()) return *measured;
  if (measured.error().code == ErrorCode::cancelled && signals.count() > 0) {
    say("stopped by a signal; nothing was measured");
    return signals.count() > 1 ? ExitCode::interrupted : ExitCode::drained;
  }
  say(fmt::format("{}\nlogs: {}/", measured.error().message, logs->keep()));
  return ExitCode::failed;
}

}  // namespace troupe
