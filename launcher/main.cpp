#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "actors/engine/engine.hpp"
#include "launcher/bench/bench.hpp"
#include "launcher/bench/collectives/collectives_bench.hpp"
#include "launcher/bench/ops/ops_bench.hpp"
#include "launcher/bench/schedule/schedule_bench.hpp"
#include "launcher/bench/weights/weights_bench.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/init/init.hpp"
#include "launcher/job/batch_job.hpp"
#include "launcher/job/job_files.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/stop_signals.hpp"

namespace troupe {
namespace {

ExitCode refuse(const Error& error) {
  std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
  return ExitCode::refused;
}

ExitCode execute(const CommandLine& line) {
  auto signals = StopSignals::block();  // before any thread
  if (!signals.ok()) return refuse(signals.error());
  const bool check = line.command == CommandLine::Command::check;
  const bool run = line.command == CommandLine::Command::run;
  auto config = load_config(line.config_path, line.overrides, run ? Purpose::run : Purpose::check);
  if (!config.ok()) return refuse(config.error());
  if (line.command == CommandLine::Command::bench) return run_bench(*config, line, *signals);
  if (!check) {
    const auto journal = check_journal(journal_options(*config, line));
    if (!journal.ok()) return refuse(journal.error());
  }
  const auto plan = plan_job(*std::move(config));
  if (!plan.ok()) return refuse(plan.error());
  if (check) {
    std::fputs(describe(*plan).c_str(), stdout);
    return ExitCode::all_answered;
  }
  return run_batch_job(*plan, line, *signals);
}

ExitCode dispatch(const std::vector<std::string>& arguments) {
  if (arguments.size() >= 2 && arguments[0] == "bench" && arguments[1] == "schedule") {
    return run_schedule_bench(std::span(arguments).subspan(2));
  }
  if (arguments.size() >= 2 && arguments[0] == "bench" && arguments[1] == "ops") {
    return run_ops_bench(std::span(arguments).subspan(2));
  }
  if (arguments.size() >= 2 && arguments[0] == "bench" && arguments[1] == "collectives") {
    return run_collectives_bench(std::span(arguments).subspan(2));
  }
  if (arguments.size() >= 2 && arguments[0] == "bench" && arguments[1] == "weights") {
    return run_weights_bench(std::span(arguments).subspan(2));
  }
  if (!arguments.empty() && arguments[0] == "init") {
    return run_init(std::span(arguments).subspan(1));
  }
  const auto parsed = parse_command_line(arguments);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    std::fputs(early->text.c_str(), early->to_stderr ? stderr : stdout);
    return early->code;
  }
  return execute(std::get<CommandLine>(parsed));
}

ExitCode launch(const std::vector<std::string>& arguments) {
  const ExitCode code = dispatch(arguments);
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return code;  // who read it has gone, and wants no more
  std::fprintf(stderr, "launcher: cannot write all of it to standard output\n");
  return code == ExitCode::all_answered ? ExitCode::failed : code;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  // Sums over GPUs are Troupe's own, so NCCL's NVLink multicast (NVLS) would only take memory and
  // time to set up. Here no other thread reads the environment yet, and the actor processes, which
  // execute this program too, get the same; what the user has set stays.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  troupe::ActorTypes types;
  troupe::add_engine_actors(types);
  troupe::init(argc, argv, types);  // agents and actor processes do not come back from here
  return static_cast<int>(troupe::launch({argv + 1, argv + argc}));
}
