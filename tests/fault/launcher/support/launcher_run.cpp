#include "tests/fault/launcher/support/launcher_run.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/process/temporary_folder.hpp"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
constexpr milliseconds poll_interval{1};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

fs::path read_link(const fs::path& path) {
  std::error_code error;
  return fs::read_symlink(path, error);
}

/// Reads the role from the name that a child was executed with: "troupe: worker-0 on node0".
std::string role_of(int pid) {
  std::string name = read_text(fmt::format("/proc/{}/cmdline", pid));
  name = name.substr(0, name.find('\0'));
  constexpr std::string_view prefix = "troupe: ";
  if (!name.starts_with(prefix)) return "";
  return name.substr(prefix.size(), name.find(' ', prefix.size()) - prefix.size());
}

int parent_of(int pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = stat.rfind(") ");
  return end_of_name == std::string::npos ? 0 : std::atoi(stat.c_str() + end_of_name + 4);
}

bool is_zombie(int pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = stat.rfind(") ");
  return end_of_name == std::string::npos || stat[end_of_name + 2] == 'Z' ||
         stat[end_of_name + 2] == 'X';
}

std::vector<int> all_pids() {
  std::vector<int> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      pids.push_back(std::stoi(name));
    }
  }
  return pids;
}

/// Inode and name of every bound abstract socket of the machine.
std::vector<std::pair<std::string, std::string>> bound_sockets() {
  std::vector<std::pair<std::string, std::string>> sockets;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::array<std::string, 6> skipped;
    std::string inode, name;
    for (auto& field : skipped) fields >> field;
    if (fields >> inode >> name && name.starts_with('@')) sockets.emplace_back(inode, name);
  }
  return sockets;
}

/// Answers come from the first second on, although most take long.
void write_requests(const fs::path& path, int count, int longest_answer, std::string_view body) {
  std::ofstream file(path);
  auto fields = nlohmann::json::parse(body);
  const nlohmann::json only = fields.value("only", nlohmann::json::object());
  fields.erase("only");
  for (int i = 0; i < count; ++i) {
    nlohmann::json request = {{"custom_id", fmt::format("tale-{}", i)},
                              {"method", "POST"},
                              {"url", "/v1/completions"},
                              {"body",
                               {{"model", "fable-moe"},
                                {"prompt", fmt::format("Fable {}. The crow said to the fox,", i)},
                                {"temperature", 0},
                                {"ignore_eos", true},
                                {"max_tokens", i % 4 == 0 ? 2 + i % 60 : longest_answer}}}};
    request["body"].update(fields);
    const std::string name = request["custom_id"];
    if (only.contains(name)) request["body"].update(only.at(name));
    file << request.dump() << '\n';
  }
}

void write_config(const fs::path& path, std::string_view parallel, std::string_view sections) {
  std::ofstream(path) << "name: fault\n"
                         "model:\n"
                         "  path: " TROUPE_SOURCE_DIR
                         "/configs/demo/fable-moe\n"
                         "cluster: {launch: local}\n"
                         "parallel: {"
                      << parallel
                      << "}\n"
                         "job: {input: requests.jsonl, output: out.jsonl}\n"
                      << sections;
  if (sections.find("engine:") == std::string_view::npos) {
    std::ofstream(path, std::ios::app) << "engine: {threads_per_worker: 1}\n";
  }
}

[[noreturn]] void become_launcher(const fs::path& folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);  // as a shell does; Ctrl-Z does not stop a process in an orphaned group
  const int log = ::open((folder / "stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (::chdir(folder.c_str()) != 0 || log < 0) ::_exit(126);
  ::dup2(log, 1);
  ::dup2(log, 2);
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = std::min<rlim_t>(1024, descriptors.rlim_max);  // the usual limit of most
                                                                        // systems
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  ::setenv("TMPDIR", (folder / "tmp").c_str(), 1);
  ::execl(TROUPE_LAUNCHER, "launcher", "--config", "cluster.yaml", "--quiet", nullptr);
  ::_exit(127);
}

template <class Condition>
bool wait_until(Condition condition, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(poll_interval);
  }
  return true;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

Result<LauncherRun> LauncherRun::start(std::string_view parallel, int requests, int longest_answer,
                                       std::string_view sections, std::string_view body) {
  TROUPE_TRY(auto made, TemporaryFolder::create("troupe-fault"));
  const fs::path folder = fs::canonical(made.keep());
  fs::create_directory(folder / "tmp");
  write_requests(folder / "requests.jsonl", requests, longest_answer, body);
  write_config(folder / "cluster.yaml", parallel, sections);
  LauncherRun run(folder, 0);
  TROUPE_CHECK(run.start_again());
  return run;
}

Result<void> LauncherRun::start_again() {
  const int pid = ::fork();
  if (pid < 0) return fail_errno(errno, "cannot fork");
  if (pid == 0) become_launcher(folder_);
  pid_ = pid;
  wait_status_.reset();
  return {};
}

LauncherRun::LauncherRun(LauncherRun&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      pid_(std::exchange(other.pid_, 0)),
      wait_status_(other.wait_status_) {}

LauncherRun::~LauncherRun() {
  if (folder_.empty()) return;
  if (pid_ != 0 && !ended()) ::kill(pid_, SIGKILL);
  for (const JobProcess& process : processes()) ::kill(process.pid, SIGKILL);
  (void)wait_until([this] { return ended() && processes().empty(); }, milliseconds(2000));
  std::error_code error;
  fs::remove_all(folder_, error);
}

bool LauncherRun::ended() {
  int status = 0;
  if (!wait_status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  return wait_status_.has_value();
}

std::vector<JobProcess> LauncherRun::processes() const {
  std::vector<JobProcess> found;
  for (const int pid : all_pids()) {
    // Only root may see driver's and agents' /proc entries.
    const fs::path cwd = read_link(fmt::format("/proc/{}/cwd", pid));
    const bool is_ours = cwd == folder_ || (cwd.empty() && (pid == pid_ || parent_of(pid) == pid_));
    if (!is_ours || is_zombie(pid)) continue;
    found.push_back({pid, pid == pid_ ? "driver" : role_of(pid)});
  }
  return found;
}

int LauncherRun::wait_for_role(std::string_view role, milliseconds limit) const {
  int pid = 0;
  (void)wait_until(
      [&] {
        for (const JobProcess& process : processes()) {
          if (process.role == role) pid = process.pid;
        }
        return pid != 0;
      },
      limit);
  return pid;
}

bool LauncherRun::wait_for_answers(std::size_t count, milliseconds limit) const {
  return wait_until(
      [&] {
        const std::string text = output_text();
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= count;
      },
      limit);
}

std::set<std::string> LauncherRun::descriptors() const {
  std::set<std::string> held;
  for (const JobProcess& process : processes()) {
    std::error_code error;
    for (const auto& entry :
         fs::directory_iterator(fmt::format("/proc/{}/fd", process.pid), error)) {
      held.insert(read_link(entry.path()).string());  // "socket:[12345]"
    }
  }
  return held;
}

LauncherRun::Listeners LauncherRun::listeners() const {
  const auto held = descriptors();
  const auto is_held = [&](const std::string& inode) {
    return held.contains(fmt::format("socket:[{}]", inode));
  };
  Listeners found;
  std::ifstream unix_table("/proc/net/unix"), tcp_table("/proc/net/tcp");
  std::string skipped, flags, inode, name, address, state;
  for (std::string line; std::getline(unix_table, line);) {
    std::istringstream fields(line);
    fields >> skipped >> skipped >> skipped >> flags >> skipped >> skipped >> inode >> name;
    if (fields && flags == "00010000" && name.starts_with('@') && is_held(inode)) {
      found.abstract.push_back(name.substr(1));
    }
  }
  for (std::string line; std::getline(tcp_table, line);) {
    std::istringstream fields(line);
    fields >> skipped >> address >> skipped >> state >> skipped >> skipped >> skipped >> skipped >>
        skipped >> inode;
    if (fields && state == "0A" && is_held(inode)) {
      found.ports.push_back(static_cast<std::uint16_t>(
          std::stoul(address.substr(address.find(':') + 1), nullptr, 16)));
    }
  }
  return found;
}

std::vector<std::string> LauncherRun::abstract_sockets() const {
  const auto held = descriptors();
  std::vector<std::string> names;
  for (const auto& [inode, name] : bound_sockets()) {
    if (held.contains(fmt::format("socket:[{}]", inode))) names.push_back(name);
  }
  return names;
}

Aftermath LauncherRun::watch(Clock::time_point since, const std::vector<std::string>& sockets,
                             milliseconds limit) {
  Aftermath seen;
  (void)wait_until(
      [&] {
        const bool over = ended();  // before reading stderr, whose final message comes before the
                                    // end
        if (!seen.reported_ms && stderr_text().find("logs: ") != std::string::npos) {
          seen.reported_ms = ms_since(since);
        }
        seen.left = processes();
        // A process whose main thread is a zombie may have threads that still hold sockets.
        if (!over || !seen.left.empty() || !still_bound(sockets).empty()) return false;
        seen.gone_ms = ms_since(since);
        return true;
      },
      limit);
  if (wait_status_ && WIFEXITED(*wait_status_)) seen.exit_code = WEXITSTATUS(*wait_status_);
  return seen;
}

std::string LauncherRun::stderr_text() const { return read_text(folder_ / "stderr"); }
std::string LauncherRun::log_text(std::string_view role) const {
  return read_text(folder_ / fmt::format("out.jsonl.job/{}.log", role));
}
std::string LauncherRun::report_text() const {
  return read_text(folder_ / "out.jsonl.job/report.json");
}
std::size_t LauncherRun::log_lines() const {
  std::string text = stderr_text();
  for (const auto& entry : fs::directory_iterator(folder_ / "out.jsonl.job")) {
    if (entry.path().extension() == ".log") text += read_text(entry.path());
  }
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

int LauncherRun::metrics_port() const {
  const std::string url = read_text(folder_ / "out.jsonl.job/metrics.txt");
  const auto colon = url.rfind(':');
  return colon == std::string::npos ? 0 : std::atoi(url.c_str() + colon + 1);
}

std::string LauncherRun::output_text() const { return read_text(folder_ / "out.jsonl"); }

std::vector<std::string> LauncherRun::unexpected_files() const {
  const std::set<std::string> expected{"stderr",       "tmp",       "requests.jsonl",
                                       "cluster.yaml", "out.jsonl", "out.jsonl.job"};
  const std::set<std::string> kept{"lock",        "fingerprint.json", "fingerprint.json.new",
                                   "report.json", "report.html",      "trace.json",
                                   "figures.bin", "figures.bin.new"};
  std::vector<std::string> others;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    const fs::path path = entry.path().lexically_relative(folder_);
    const bool in_job = path.parent_path() == "out.jsonl.job";
    const bool is_known =
        in_job && (path.extension() == ".log" || kept.contains(path.filename().string()));
    if (!is_known && !expected.contains(path.string())) others.push_back(path.string());
  }
  return others;
}

std::vector<std::string> still_bound(const std::vector<std::string>& names) {
  std::vector<std::string> bound;
  for (const auto& [inode, name] : bound_sockets()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) bound.push_back(name);
  }
  return bound;
}

Result<std::size_t> count_whole_answers(const std::string& output) {
  if (!output.empty() && output.back() != '\n') {
    return fail(ErrorCode::corrupt_data, "the output ends in the middle of a line: ...{}",
                output.substr(output.size() - std::min<std::size_t>(output.size(), 80)));
  }
  std::set<std::string> ids;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto answer = nlohmann::json::parse(line, nullptr, false);
    if (!answer.is_object() || !answer.contains("custom_id") || !answer["custom_id"].is_string()) {
      return fail(ErrorCode::corrupt_data, "no answer: {}", line.substr(0, 200));
    }
    if (!ids.insert(answer["custom_id"]).second) {
      return fail(ErrorCode::corrupt_data, "answered twice: {}", line.substr(0, 200));
    }
  }
  return ids.size();
}

}  // namespace troupe::test
