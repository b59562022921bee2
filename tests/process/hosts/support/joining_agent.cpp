#include "tests/process/hosts/support/joining_agent.hpp"

#include <fstream>
#include <stdexcept>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {

void write_token(const std::filesystem::path& file, char digit, bool is_private) {
  std::ofstream(file) << "troupe-token 1 " << std::string(64, digit) << "\n";
  std::filesystem::permissions(file, std::filesystem::perms(is_private ? 0600 : 0644));
}

JoiningAgent::JoiningAgent(const LauncherJob& job, int host, const std::string& token,
                           const std::string& program)
    : log_(job.folder() / fmt::format("joins-{}-{}.log", host, token)) {
  const std::string command =
      fmt::format("cd {} && exec {} --join {} --token-file {} --wait 60", job.folder().string(),
                  program.empty() ? TROUPE_LAUNCHER " agent" : program, listen_at, token);
  auto process = ChildProcess::start({.arguments = {"ssh", test::host_name(host), command},
                                      .output_path = log_.string(),
                                      .program = "ssh"});
  if (!process.ok()) throw std::runtime_error(process.error().message);
  process_.emplace(*std::move(process));
}

int JoiningAgent::wait() {
  const auto status = process_->wait(run_limit);
  return status && !status->signalled ? status->code : -1;
}

std::string JoiningAgent::log() {
  const auto status = process_->wait(std::chrono::milliseconds(0));
  return golden::file_bytes(log_) + (status ? "[its ssh " + status->describe() + "]\n" : "");
}

}  // namespace troupe::launcher_test
