#include "launcher/cli/agent_options.hpp"

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {

std::string_view AgentArguments::summary() const {
  return "Makes this machine a node of the job of a launcher with cluster.launch: join.";
}

std::string AgentArguments::details() const {
  return R"(Example, the line that the launcher prints:
  launcher agent --join gpu01:7000 --token-file job.token

It may be started before the launcher, and ends with its job; SIGTERM or Ctrl-C
ends it earlier, and the job with it. What it and its processes log goes to
standard error. Exit codes: 0 the job has ended; 2 it could not join; 1 it has
lost the launcher, or was ended by a signal.)";
}

void AgentArguments::declare(CLI::App& app) {
  app.add_option("--join", join_, "where the launcher listens: its cluster.listen")
      ->type_name("HOST:PORT")
      ->required()
      ->expected(1);
  app.add_option("--token-file", options_.token_file,
                 "the launcher's cluster.token_file, or a copy that nobody else can read")
      ->type_name("FILE")
      ->required()
      ->expected(1);
  app.add_option("--wait", patience_seconds_, "how long to wait for the launcher to be there")
      ->type_name("SECONDS")
      ->check(integer_between(1, 86400))
      ->capture_default_str();
}

Result<AgentOptions> AgentArguments::judge() const {
  AgentOptions options = options_;
  auto join = HostPort::parse(join_);
  if (!join.ok() || join->port == 0) {
    return fail(ErrorCode::invalid_argument, "--join needs HOST:PORT, found '{}'", join_);
  }
  options.join = *std::move(join);
  options.patience = std::chrono::seconds(patience_seconds_);
  return options;
}

}  // namespace troupe
