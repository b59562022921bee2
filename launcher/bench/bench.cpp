#include "launcher/bench/bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/bench/faults/fault_report.hpp"
#include "launcher/bench/faults/fault_run.hpp"
#include "launcher/bench/faults/possible_faults.hpp"
#include "launcher/bench/sweep/sweep.hpp"
#include "launcher/bench/sweep/sweep_page.hpp"
#include "launcher/bench/sweep/sweep_report.hpp"
#include "launcher/bench/throughput/bench_client.hpp"
#include "launcher/bench/throughput/bench_report.hpp"
#include "launcher/bench/throughput/figures.hpp"
#include "launcher/bench/throughput/workload.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/node_wait.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

void say(const std::string& text) { std::fprintf(stderr, "launcher: %s\n", text.c_str()); }

using Clock = std::chrono::steady_clock;
using Kind = BenchOptions::Kind;

constexpr std::int64_t warm_up_prompt = 16;
constexpr std::int64_t warm_up_answer = 2;
constexpr std::size_t warm_up_at_once = 4;
constexpr double ceiling_seconds = 0.5;
/// In place of restart.max, where processes are lost on purpose.
constexpr std::int64_t unbounded_recoveries = 1'000'000;
/// Differs from the seeds of measured requests, so that none of their prefixes is cached.
constexpr std::uint64_t warm_up_seed = 0x5eed0fULL << 40;

/// A session that Ctrl-Z suspends for as long as this lives.
class SuspendableSession {
 public:
  SuspendableSession(std::unique_ptr<EngineSession> session, StopSignals& signals)
      : session_(std::move(session)), signals_(&signals) {
    EngineSession& own = *session_;
    signals.on_pause([&own] { own.suspend(); }, [&own] { own.resume(); });
  }
  SuspendableSession(SuspendableSession&&) = default;
  SuspendableSession& operator=(SuspendableSession&&) = delete;
  ~SuspendableSession() {
    if (session_) signals_->on_pause({}, {});
  }

  EngineSession& operator*() const { return *session_; }
  EngineSession* operator->() const { return session_.get(); }

 private:
  std::unique_ptr<EngineSession> session_;
  StopSignals* signals_;
};

/// One benchmark: its settings and results.
class Bench {
 public:
  Bench(const Config& config, const BenchOptions& options, StopSignals& signals,
        TemporaryFolder& logs)
      : config_(config), options_(options), signals_(signals), logs_(logs) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  /// Removes result files that it created and did not fill.
  ~Bench() {
    for (const std::string& path : made_) {
      std::error_code ignored;
      if (std::filesystem::is_empty(path, ignored)) std::filesystem::remove(path, ignored);
    }
  }

  /// Errors are refusals: nothing was started.
  Result<void> prepare() {
    Config config = config_;
    if (options_.kind == Kind::faults) config.restart.max = unbounded_recoveries;
    TROUPE_TRY(plan_, plan_job(std::move(config)));
    if (options_.kind == Kind::faults) {
      TROUPE_TRY(faults_, possible_faults(options_.faults, plan_));
    }
    const WorkloadBounds bounds{plan_.model.vocab_size, plan_.engine.max_model_len};
    if (options_.kind == Kind::faults) {
      TROUPE_TRY(workload_, make_mixed_workload(options_, config_, bounds));
    } else {
      TROUPE_TRY(workload_, make_workload(options_, config_, bounds));
    }
    const std::pair<std::string_view, std::string> files[] = {{"--json", options_.json},
                                                              {"--html", options_.sweep.html}};
    for (const auto& [option, path] : files) {
      if (path.empty()) continue;
      std::error_code ignored;
      const bool is_new = !std::filesystem::exists(path, ignored);
      if (!std::ofstream(path, std::ios::app)) {
        return fail(ErrorCode::io, "cannot write {} {}", option, path);
      }
      if (is_new) made_.push_back(path);
    }
    return {};
  }

  /// The text printed although measure() failed.
  const std::string& told() const { return told_; }

  Result<ExitCode> measure() {
    if (options_.kind == Kind::startup) return measure_startup();
    if (options_.kind == Kind::sweep) return measure_sweep();
    if (options_.kind == Kind::faults) return measure_faults();
    TROUPE_TRY(const auto session, start(plan_));
    std::vector<Request> warm_up;
    warm_up.push_back(
        random_request(warm_up_prompt, warm_up_answer, warm_up_seed, plan_.model.vocab_size));
    TROUPE_TRY(const RunResult warmed,
               run_paced(*session, std::move(warm_up), {.at_once = 1}, signals_));
    const std::size_t at_once = options_.kind == Kind::latency ? 1 : request_window(plan_.engine);
    TROUPE_TRY(const RunResult result,
               run_paced(*session, workload_.requests, {.at_once = at_once}, signals_));
    session->shutdown();
    tell_failure(result.outcomes);
    if (options_.kind == Kind::latency) return tell(latency_of(result.outcomes));
    ThroughputFigures figures = throughput_of(result.outcomes);
    figures.steps = result.stats.steps - warmed.stats.steps;
    figures.preemptions = result.stats.scheduler.preemptions - warmed.stats.scheduler.preemptions;
    figures.swaps = result.stats.scheduler.swaps - warmed.stats.scheduler.swaps;
    return tell(figures);
  }

 private:
  Result<SuspendableSession> start(const JobPlan& plan) {
    NodeWait nodes(plan.config, say);
    auto started =
        EngineSession::start(plan, logs_.path().string(), options_.log_level,
                             {.while_waiting =
                                  [&](const ClusterWait& wait) {
                                    (void)nodes.update(wait);
                                    signals_.on_pause(wait.suspend, wait.resume);
                                    return signals_.count() == 0;
                                  },
                              .keep_going = [this] { return signals_.count() == 0; },
                              .on_staging = [this](auto...) { return signals_.count() == 0; }});
    signals_.on_pause({}, {});
    join_command_ = nodes.join_command();
    TROUPE_TRY(auto running, std::move(started));
    SuspendableSession session(std::move(running), signals_);
    TROUPE_TRY([[maybe_unused]] const EngineInfo info,
               session->wait_until_ready([this] { return signals_.count() == 0; }));
    return session;
  }

  static void tell_failure(const std::vector<Outcome>& outcomes) {
    const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                     [](const Outcome& outcome) { return !outcome.error.empty(); });
    if (failed == outcomes.end()) return;
    std::fprintf(stderr, "launcher: a request failed: %s\n", failed->error.c_str());
  }

  /// The figures to compare loads with, measured on the idle machine, before the engine starts.
  SweepFigures sweep_figures() const {
    SweepFigures figures;
    figures.options = options_.sweep;
    if (!figures.options.has_limits()) {
      figures.options.ttft_ms = config_.slo.ttft_ms;
      figures.options.tpot_ms = config_.slo.itl_ms;
      figures.options.e2e_ms = config_.slo.e2e_ms;
    }
    figures.runs = options_.repeat;
    if (plan_.engine.device != DeviceKind::cpu) return figures;  // the ceilings are the CPU's
    const int workers = plan_.mesh.world_size() * plan_.engine.threads_per_worker;
    figures.ceiling_threads = std::min(workers, plan_.cores);
    figures.ceilings = measure_ceilings(figures.ceiling_threads, ceiling_seconds);
    return figures;
  }

  /// Runs once at `load`; each run has its own requests, numbered by `run`.
  Result<SweepRun> measure_load(EngineSession& session, double load, std::uint64_t run,
                                EngineStats& before) {
    BenchOptions options = options_;
    options.seed = options_.seed + run;
    TROUPE_TRY(
        Workload workload,
        make_workload(options, config_, {plan_.model.vocab_size, plan_.engine.max_model_len}));
    Pace pace{.at_once = workload.requests.size()};
    if (options.sweep.by_rate) {
      pace.arrivals = poisson_arrivals(workload.requests.size(), load, options.seed);
    } else {
      pace.at_once = static_cast<std::size_t>(load);
    }
    TROUPE_TRY(RunResult result,
               run_paced(session, std::move(workload.requests), std::move(pace), signals_));
    tell_failure(result.outcomes);
    const EngineStats& now = result.stats;
    SweepRun measured{.outcomes = std::move(result.outcomes),
                      .seconds = result.seconds,
                      .steps = std::move(result.steps),
                      .computed_prompt_tokens = static_cast<double>(
                          now.scheduler.prompt_tokens - before.scheduler.prompt_tokens)};
    before = now;
    return measured;
  }

  /// The cost of tokens of the job's model on its mesh.
  ModelWork model_work() const {
    const bool narrow = plan_.engine.dtype == DType::bf16 || plan_.model.dtype != DType::f32;
    const int of_attention = plan_.mesh.replicas_per_domain() * plan_.mesh.shape().context;
    const int copies = plan_.mesh.data_parallel_attention() ? 1 : of_attention;
    const DType stored = plan_.engine.kv_dtype();
    return {plan_.model, narrow ? 2.0 : 4.0, static_cast<double>(size_of(stored)),
            static_cast<double>(copies), static_cast<double>(of_attention)};
  }

  Result<ExitCode> measure_sweep() {
    SweepFigures figures = sweep_figures();
    const Result<void> measured = measure_loads(figures);
    if (figures.points.empty()) TROUPE_CHECK(measured);
    // If a sweep broke off, the loads before that are printed.
    TROUPE_TRY(const ExitCode code, tell(figures));
    if (measured.ok()) return code;
    told_ = fmt::format("the figures are of {} of {} loads, of the last {} of {} runs",
                        figures.points.size(), figures.options.loads.size(),
                        figures.points.back().runs, figures.runs);
    return measured.error();
  }

  /// Fills `figures.points` as far as it gets.
  Result<void> measure_loads(SweepFigures& figures) {
    const ModelWork work = model_work();
    TROUPE_TRY(const auto session, start(plan_));
    std::vector<Request> warm_up;
    for (std::int64_t i = 0; i < figures.options.warm_up; ++i) {
      warm_up.push_back(random_request(warm_up_prompt, warm_up_answer,
                                       warm_up_seed + static_cast<std::uint64_t>(i),
                                       plan_.model.vocab_size));
    }
    TROUPE_TRY(const RunResult warmed,
               run_paced(*session, std::move(warm_up), {.at_once = warm_up_at_once}, signals_));
    EngineStats before = warmed.stats;
    std::uint64_t number = 0;
    for (const double load : figures.options.loads) {
      std::vector<SweepRun> runs;
      Result<void> ended;
      for (std::int64_t i = 0; i < figures.runs && ended.ok(); ++i) {
        Result<SweepRun> run = measure_load(*session, load, number++, before);
        if (run.ok()) {
          runs.push_back(*std::move(run));
        } else {
          ended = std::move(run).error();
        }
      }
      if (!runs.empty()) {
        figures.points.push_back(sweep_point(load, runs, figures.options, work, figures.ceilings));
      }
      TROUPE_CHECK(ended);
      if (!options_.quiet) {
        std::fprintf(stderr, "%s: %.1f output tokens/s\n", load_name(figures.options, load).c_str(),
                     figures.points.back().output_tokens_per_second);
      }
    }
    session->shutdown();
    return {};
  }

  Result<ExitCode> measure_faults() {
    if (!faults_.note.empty()) say(faults_.note);
    FaultFigures figures;
    const Result<void> measured = [&]() -> Result<void> {
      TROUPE_TRY(const auto session, start(plan_));
      FaultRun run(*session, plan_, options_.faults, workload_.requests, signals_,
                   [this](const std::string& line) {
                     if (!options_.quiet) std::fprintf(stderr, "%s\n", line.c_str());
                   });
      run.set_join_command(join_command_);
      const Result<void> ran = run.run(faults_.kinds, options_.seed);
      figures = run.figures();
      return ran;
    }();
    if (figures.faults.empty()) TROUPE_CHECK(measured);
    // If it broke off, the faults before that are printed.
    TROUPE_TRY(const ExitCode code, tell(figures));
    if (measured.ok()) return code;
    told_ =
        fmt::format("the figures are of {} of {} faults", figures.faults.size(), figures.planned);
    return measured.error();
  }

  Result<void> write_page(const SweepFigures& figures, const std::string& heading) {
    const std::string& path = options_.sweep.html;
    if (path.empty()) return {};
    std::ofstream file(path, std::ios::trunc);
    file << sweep_page(figures, heading);
    file.close();
    if (file) return {};
    return fail(ErrorCode::io, "cannot write --html {}", path);
  }

  Result<ExitCode> measure_startup() {
    workload_.requests.resize(1);
    workload_.requests.front().max_tokens = 1;
    std::vector<StartupFigures> starts;
    for (std::int64_t i = 0; i < options_.repeat; ++i) {
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
    if (options_.json.empty()) return {};
    auto json = bench_subject_json(subject, plan_);
    json.update(figures);
    std::ofstream file(options_.json, std::ios::trunc);
    // Paths may hold invalid UTF-8.
    file << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    file.close();
    if (file) return {};
    return fail(ErrorCode::io, "cannot write --json {}", options_.json);
  }

  template <class Figures>
  Result<ExitCode> tell(const Figures& figures) {
    const BenchSubject subject{std::string(to_string(options_.kind)), workload_.description,
                               workload_.requests.size()};
    const std::string heading = bench_heading(subject, plan_);
    std::fputs((heading + to_table(figures)).c_str(), stdout);
    TROUPE_CHECK(write_json(to_json(figures), subject));
    if constexpr (std::is_same_v<Figures, SweepFigures>) {
      TROUPE_CHECK(write_page(figures, heading));
      const bool failed = std::any_of(figures.points.begin(), figures.points.end(),
                                      [](const SweepPoint& point) { return point.failed > 0; });
      if (failed) return ExitCode::finished_with_errors;
    }
    if constexpr (std::is_same_v<Figures, FaultFigures>) {
      if (figures.failed()) return ExitCode::finished_with_errors;
    }
    if constexpr (requires { figures.failed; }) {
      if (figures.failed > 0) return ExitCode::finished_with_errors;
    }
    return ExitCode::all_answered;
  }

  const Config& config_;
  const BenchOptions& options_;
  StopSignals& signals_;
  TemporaryFolder& logs_;
  JobPlan plan_;
  PossibleFaults faults_;
  std::string join_command_;  // of the last start
  Workload workload_;
  std::string told_ = "nothing was measured";
  std::vector<std::string> made_;  // files for figures that did not exist before
};

ExitCode refuse(const Error& error) {
  say(error.message);
  return ExitCode::refused;
}

}  // namespace

ExitCode run_bench(const BenchOptions& options) {
  auto signals = StopSignals::block();  // before any thread
  if (!signals.ok()) return refuse(signals.error());
  const auto config = options.config.load(Purpose::check);
  if (!config.ok()) return refuse(config.error());
  auto logs = TemporaryFolder::create("troupe-bench");
  if (!logs.ok()) return refuse(logs.error());
  Bench bench(*config, options, *signals, *logs);
  auto prepared = bench.prepare();
  if (prepared.ok()) {
    prepared = log::open("launcher", (logs->path() / "launcher.log").string(), options.log_level);
  }
  if (!prepared.ok()) return refuse(prepared.error());
  const auto measured = bench.measure();
  if (measured.ok()) return *measured;
  if (measured.error().code == ErrorCode::cancelled && signals->count() > 0) {
    say("stopped by a signal; " + bench.told());
    return signals->count() > 1 ? ExitCode::interrupted : ExitCode::drained;
  }
  say(fmt::format("{}\nlogs: {}/", measured.error().message, logs->keep().string()));
  return ExitCode::failed;
}

}  // namespace troupe
