#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "actors/engine/engine.hpp"
#include "actors/preflight/node_probe.hpp"
#include "actors/staging/checkpoint_actors.hpp"
#include "launcher/bench/bench.hpp"
#include "launcher/bench/collectives/collectives_bench.hpp"
#include "launcher/bench/faults/saboteur.hpp"
#include "launcher/bench/ops/ops_bench.hpp"
#include "launcher/bench/schedule/schedule_bench.hpp"
#include "launcher/bench/weights/weights_bench.hpp"
#include "launcher/check/check_job.hpp"
#include "launcher/cli/agent_options.hpp"
#include "launcher/cli/program_help.hpp"
#include "launcher/cli/reference_options.hpp"
#include "launcher/cli/state_options.hpp"
#include "launcher/cli/subcommand.hpp"
#include "launcher/config/config_reference.hpp"
#include "launcher/eval/judge.hpp"
#include "launcher/init/init.hpp"
#include "launcher/job/batch_job.hpp"
#include "launcher/job/job_files.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/stop_signals.hpp"
#include "launcher/quantize/quantize.hpp"
#include "launcher/submit/submit.hpp"
#include "runtime/node/agent.hpp"
#include "runtime/troupe/run_state_command.hpp"

namespace troupe {
namespace {

ExitCode refuse(const Error& error) {
  std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
  return ExitCode::refused;
}

ExitCode run_job(const RunOptions& options) {
  auto signals = StopSignals::block();  // before any thread
  if (!signals.ok()) return refuse(signals.error());
  auto config = options.config.load(Purpose::run);
  if (!config.ok()) return refuse(config.error());
  const auto journal = check_journal(journal_options(*config, options));
  if (!journal.ok()) return refuse(journal.error());
  const auto plan = plan_job(*std::move(config));
  if (!plan.ok()) return refuse(plan.error());
  if (const auto startable = check_startable(*plan); !startable.ok()) {
    return refuse(startable.error());
  }
  return run_batch_job(*plan, options, *signals);
}

/// Runs as a node of another launcher's job until that has ended.
ExitCode run_agent_command(const AgentOptions& options) {
  const int code = run_joining_agent(
      {options.join.host, options.join.port, options.token_file, options.patience});
  return code == 0 ? ExitCode::all_answered : ExitCode::refused;
}

/// Shows or ends clusters, as the program `troupe` does.
ExitCode run_state(const StateCommand& command) {
  const auto code = run_state_command(command);
  if (!code.ok()) return refuse(code.error());
  return static_cast<ExitCode>(*code);
}

ExitCode print_reference(const ReferenceOptions&) {
  std::fputs(configuration_reference().c_str(), stdout);
  return ExitCode::all_answered;
}

/// All commands of the launcher; `run` is the default.
std::vector<Subcommand> commands() {
  using Kind = BenchOptions::Kind;
  using State = StateCommand::Kind;
  return {
      program_row(),
      subcommand<RunArguments>("run", run_job),
      subcommand<CheckArguments>("check", check_job),
      subcommand<EvalArguments>("eval", run_eval),
      subcommand<QuantizeArguments>("quantize", run_quantize),
      subcommand<SubmitArguments>("submit", run_submit),
      subcommand<InitArguments>("init", run_init),
      subcommand<AgentArguments>("agent", run_agent_command),
      subcommand<StateArguments>("status", run_state, State::status),
      subcommand<StateArguments>("nodes", run_state, State::nodes),
      subcommand<StateArguments>("actors", run_state, State::actors),
      subcommand<StateArguments>("groups", run_state, State::groups),
      subcommand<StateArguments>("objects", run_state, State::objects),
      subcommand<StateArguments>("logs", run_state, State::logs),
      subcommand<StateArguments>("metrics", run_state, State::metrics),
      subcommand<StateArguments>("stack", run_state, State::stack),
      subcommand<StateArguments>("timeline", run_state, State::timeline),
      subcommand<StateArguments>("drain", run_state, State::drain),
      subcommand<StateArguments>("join", run_state, State::join),
      subcommand<StateArguments>("stop", run_state, State::stop),
      bench_row(),
      subcommand<BenchArguments>("bench throughput", run_bench, Kind::throughput),
      subcommand<BenchArguments>("bench latency", run_bench, Kind::latency),
      subcommand<BenchArguments>("bench startup", run_bench, Kind::startup),
      subcommand<BenchArguments>("bench sweep", run_bench, Kind::sweep),
      subcommand<BenchArguments>("bench faults", run_bench, Kind::faults),
      subcommand<OpsBenchArguments>("bench ops", run_ops_bench),
      subcommand<CollectivesBenchArguments>("bench collectives", run_collectives_bench),
      subcommand<WeightsBenchArguments>("bench weights", run_weights_bench),
      subcommand<ScheduleArguments>("bench schedule", run_schedule_bench),
      subcommand<ReferenceArguments>("reference", print_reference),
  };
}

ExitCode dispatch(const std::vector<std::string>& arguments) {
  const std::vector<Subcommand> table = commands();
  const auto parsed = parse_arguments(table, arguments);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    std::fputs(early->text.c_str(), early->to_stderr ? stderr : stdout);
    return early->code;
  }
  return std::get<Action>(parsed)();
}

ExitCode launch(const std::vector<std::string>& arguments) {
  const ExitCode code = dispatch(arguments);
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return code;  // the reader is gone
  std::fprintf(stderr, "launcher: cannot write all of it to standard output\n");
  return code == ExitCode::all_answered ? ExitCode::failed : code;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  // Troupe sums over GPUs itself, so NCCL's NVLink multicast (NVLS) would only take memory and time
  // to set up. At this point no other thread reads the environment, and the actor processes, which
  // execute this program too, inherit it; a value that the user has set stays.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  troupe::ActorTypes types;
  troupe::add_engine_actors(types);
  troupe::add_preflight_actors(types);
  troupe::add_staging_actors(types);
  troupe::add_fault_actors(types);
  troupe::init(argc, argv, types);  // agents and actor processes never return from here
  return static_cast<int>(troupe::launch({argv + 1, argv + argc}));
}
