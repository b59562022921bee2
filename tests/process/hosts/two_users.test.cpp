#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/process/child_process.hpp"
#include "runtime/process/unique_fd.hpp"
#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/another_uid.hpp"
#include "tests/support/hosts/test_hosts.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::IsEmpty;

constexpr int hosts = 4;

/// Starts a program as the user, who has no groups but the own one.
ChildProcess start_as(const test::HostUser& user, const std::vector<std::string>& program,
                      const std::string& output) {
  const auto id = std::to_string(user.uid);
  std::vector<std::string> words{"setpriv", "--reuid", id, "--regid", id, "--clear-groups"};
  words.insert(words.end(), program.begin(), program.end());
  auto process = ChildProcess::start(
      {.arguments = std::move(words), .output_path = output, .program = "setpriv"});
  if (!process.ok()) throw std::runtime_error(process.error().message);
  return *std::move(process);
}

/// A job of a user over all hosts, which goes on until end_input(). What the user has may be read
/// by others (umask 022), as far as the launcher does not forbid it.
class UsersJob {
 public:
  explicit UsersJob(const test::HostUser& user) : user_(user) {
    const std::string input = job_.folder() / "in.jsonl";
    if (::mkfifo(input.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    input_.reset(::open(input.c_str(), O_RDWR | O_CLOEXEC));
    const std::string lines = golden_input();
    ::fcntl(input_.get(), F_SETPIPE_SZ, 1 << 20);
    if (::write(input_.get(), lines.data(), lines.size()) != static_cast<ssize_t>(lines.size())) {
      throw std::runtime_error("write");
    }
    const auto root = job_.folder().parent_path();
    std::filesystem::permissions(root, std::filesystem::perms(0755));
    if (::chown(root.c_str(), user.uid, user.uid) != 0) throw std::runtime_error("chown");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (::chown(entry.path().c_str(), user.uid, user.uid) != 0) throw std::runtime_error("chown");
    }
    log_ = root / "prints" / "launcher.err";
    std::vector<std::string> settings = on_hosts(hosts, 2);
    settings.insert(settings.end(), {fmt::format("parallel.pipeline_parallel_size={}", hosts),
                                     "parallel.tensor_parallel_size=2"});
    std::vector<std::string> command{"sh",
                                     "-c",
                                     "umask 022 && cd \"$0\" && exec \"$@\"",
                                     job_.folder().string(),
                                     TROUPE_LAUNCHER,
                                     "--config",
                                     "cluster.yaml"};
    for (auto& word : as_arguments(settings)) command.push_back(std::move(word));
    process_.emplace(start_as(user, command, log_.string()));
  }

  const test::HostUser& user() const { return user_; }
  const LauncherJob& job() const { return job_; }
  std::filesystem::path log_folder() const { return job_.folder() / "out.jsonl.job"; }
  std::string log() const { return golden::file_bytes(log_); }
  bool is_running() { return !process_->wait(std::chrono::milliseconds(0)); }
  bool wait_for_an_answer() {
    for (int i = 0; i < 3000 * test::time_scale && is_running(); ++i) {
      if (!golden::file_bytes(job_.output()).empty()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  void end_input() { input_.reset(); }
  int wait() {
    const auto status = process_->wait(run_limit);
    return status && !status->signalled ? status->code : -1;
  }

 private:
  const test::HostUser user_;
  LauncherJob job_;
  UniqueFd input_;
  std::filesystem::path log_;
  std::optional<ChildProcess> process_;
};

/// The processes of a user, on all hosts.
std::vector<std::string> pids_of(const test::HostUser& user) {
  std::vector<std::string> pids;
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", status)) {
    const std::string text = golden::file_bytes(entry.path() / "status");
    if (text.find(fmt::format("\nUid:\t{}\t", user.uid)) != text.npos) {
      pids.push_back(entry.path().filename());
    }
  }
  return pids;
}

/// The names of the abstract sockets at which somebody listens on a host (0: this one).
std::vector<std::string> unix_listeners(int host) {
  const std::string in_host =
      host == 0 ? "" : fmt::format("nsenter --net=/run/netns/{} ", test::host_name(host));
  std::FILE* out =
      ::popen((in_host + "cat /proc/net/unix | awk '$4 == \"00010000\" {print $8}'").c_str(), "r");
  std::vector<std::string> names;
  char name[200];
  while (std::fscanf(out, "%199s", name) == 1) {
    if (name[0] == '@') names.emplace_back(name + 1);
  }
  ::pclose(out);
  return names;
}

/// The paths below which `spy` may open a file or list a folder that is the job's: memory,
/// environment, descriptors and the like of its processes, its logs, shared memory and temporary
/// files.
std::vector<std::string> what_is_open_to(const test::HostUser& spy, const UsersJob& job,
                                         const std::filesystem::path& scratch) {
  std::ostringstream command;
  command << "try() { if [ -d \"$1\" ]; then ls \"$1\" >/dev/null 2>&1 && echo \"$1\"; "
             "else (exec <\"$1\") 2>/dev/null && echo \"$1\"; fi; }\n";
  for (const auto& pid : pids_of(job.user())) {
    for (const char* file : {"mem", "environ", "maps", "auxv", "io", "fd", "map_files", "cwd/"}) {
      command << "try /proc/" << pid << "/" << file << "\n";
    }
  }
  command << "try " << job.log_folder() << "\n";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job.log_folder())) {
    command << "try " << entry.path() << "\n";
  }
  command << "for at in $(find /dev/shm /tmp -maxdepth 1 -user " << job.user().name << " ! -path "
          << job.job().folder().parent_path() << " 2>/dev/null); do try $at; done\n"
          << "echo finished\n";
  const std::string output = scratch / fmt::format("{}-sees-{}", spy.name, job.user().name);
  const auto ended = start_as(spy, {"sh", "-c", command.str()}, output).wait(run_limit);
  EXPECT_TRUE(ended && !ended->signalled) << "the look around has not ended";
  std::vector<std::string> open;
  std::ifstream lines(output);
  for (std::string line; std::getline(lines, line);) open.push_back(line);
  if (open.empty() || open.back() != "finished") {
    ADD_FAILURE() << "the look around was not finished: " << golden::file_bytes(output);
    return open;
  }
  open.pop_back();
  return open;
}

/// True if who listens at the abstract socket of the host closes a connection of the user at once.
bool turns_away(int host, const std::string& name, const test::HostUser& user) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  bool turned_away = false;
  std::thread([&] {  // a thread may be in another network than its process
    if (host != 0) {
      const auto network = fmt::format("/run/netns/{}", test::host_name(host));
      const UniqueFd there(::open(network.c_str(), O_RDONLY | O_CLOEXEC));
      if (::setns(there.get(), CLONE_NEWNET) != 0) return;
    }
    turned_away = test::as_another_uid(
        [&] {
          const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
          const timeval limit{1, 0};
          ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
          char byte = 0;
          if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0)
            return true;
          const ssize_t got = ::recv(socket, &byte, 1, 0);
          return got == 0 || (got < 0 && errno != EAGAIN);
        },
        user.uid);
  })
      .join();
  return turned_away;
}

/// Both users connect to every abstract socket of the host.
void expect_that_nobody_lets_in_both(int host) {
  const auto names = unix_listeners(host);
  std::vector<std::array<char, 2>> turned_away(names.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < names.size(); ++i) {
      threads.emplace_back([&, i] { turned_away[i][0] = turns_away(host, names[i], test::ann); });
      threads.emplace_back([&, i] { turned_away[i][1] = turns_away(host, names[i], test::ben); });
    }
  }
  int let_in = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_TRUE(turned_away[i][0] != 0 || turned_away[i][1] != 0) << names[i];
    let_in += turned_away[i][0] == 0 || turned_away[i][1] == 0 ? 1 : 0;
  }
  EXPECT_GT(let_in, 0) << "host " << host << " turns away everybody, also the owners";
}

TEST(TwoUsers, run_jobs_on_the_same_hosts_at_once_and_neither_sees_anything_of_the_other) {
  if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  const golden::TemporaryFolder scratch;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0777));
  UsersJob of_ann(test::ann), of_ben(test::ben);
  for (UsersJob* job : {&of_ann, &of_ben}) {
    ASSERT_TRUE(job->wait_for_an_answer()) << job->log();
    EXPECT_GE(pids_of(job->user()).size(), 2U + 2 * hosts + 2 * hosts)
        << "launcher, executor, and for each host ssh, agent and two workers";
  }
  EXPECT_THAT(what_is_open_to(test::ben, of_ann, scratch.path()), IsEmpty());
  EXPECT_THAT(what_is_open_to(test::ann, of_ben, scratch.path()), IsEmpty());
  EXPECT_THAT(what_is_open_to(test::ann, of_ann, scratch.path()), Contains(EndsWith("/mem")))
      << "looking around finds nothing even where it may look";
  for (int host = 0; host <= hosts; ++host) expect_that_nobody_lets_in_both(host);
  const Answers expected = answers_to(golden_input());
  for (UsersJob* job : {&of_ann, &of_ben}) {
    job->end_input();
    EXPECT_EQ(job->wait(), 0) << job->log();
    expect_same_payloads(expected, job->job().answers(), job->user().name);
  }
}

}  // namespace
}  // namespace troupe::launcher_test
