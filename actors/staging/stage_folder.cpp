#include "actors/staging/stage_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/hash.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr const char* mark_prefix = ".shared-by-";

/// Names this process's pid namespace, in which its pid counts, among all hosts that may write to a
/// shared file system.
std::string mark_of_namespace() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::error_code ignored;
  const auto pids = fs::read_symlink("/proc/self/ns/pid", ignored).string();
  return fmt::format("{:016x}", hash_128(boot + pids).first);
}

}  // namespace

Result<void> make_private_folders(const std::string& folder) {
  fs::path made;
  for (const fs::path& part : fs::path(folder)) {
    made /= part;
    if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) {
      return fail_errno(errno, fmt::format("cannot make the folder {}", made.string()));
    }
  }
  return {};
}

std::string name_for_this_process(const std::string& prefix) {
  return fmt::format("{}{}-{}-XXXXXX", prefix, mark_of_namespace(), ::getpid());
}

void remove_abandoned(const std::string& prefix) {
  const fs::path path = prefix + mark_of_namespace() + "-";
  const std::string begin = path.filename().string();
  std::error_code problem;
  for (fs::directory_iterator entry(path.parent_path(), problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(begin)) continue;
    const int pid = std::atoi(name.c_str() + begin.size());
    if (pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
  }
}

Result<FolderMark> FolderMark::make(const std::string& folder) {
  TROUPE_CHECK(make_private_folders(folder));
  const std::string prefix = folder + "/" + mark_prefix;
  remove_abandoned(prefix);
  std::string path = name_for_this_process(prefix);
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) return fail_errno(errno, fmt::format("cannot write {}", path));
  return FolderMark(std::move(path));
}

FolderMark& FolderMark::operator=(FolderMark&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

FolderMark::~FolderMark() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

std::string FolderMark::name() const { return fs::path(path_).filename(); }

bool has_mark(const std::string& folder, const std::string& name) {
  struct stat found{};
  return ::stat((folder + "/" + name).c_str(), &found) == 0;
}

}  // namespace troupe
