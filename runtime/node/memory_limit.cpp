#include "runtime/node/memory_limit.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/control_groups.hpp"
#include "runtime/base/oom_kills.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

constexpr const char* prefix = "troupe-";

/// One write, as control files want it; the errno, or 0.
int write_control(const std::filesystem::path& file, const std::string& text) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return errno;
  return ::write(fd.get(), text.data(), text.size()) < 0 ? errno : 0;
}

/// True if groups below a group of version 2 count memory.
bool gives_memory_below(const std::filesystem::path& group) {
  std::ifstream file(group / "cgroup.subtree_control");
  for (std::string controller; file >> controller;) {
    if (controller == "memory") return true;
  }
  return false;
}

/// Has them do so.
Result<void> give_memory_to_groups_below(const std::filesystem::path& parent) {
  if (gives_memory_below(parent)) return {};
  const int why = write_control(parent / "cgroup.subtree_control", "+memory");
  if (why == 0) return {};
  return fail(ErrorCode::unsupported,
              "the control group {} does not give memory to groups below ({}): version 2 wants a "
              "group that is delegated to this user and has no processes itself, as the parent of "
              "this process's own group may be",
              parent.string(), std::strerror(why));
}

/// A group of version 2 beside which another one may be made, as it has a parent that gives memory
/// to its groups and is not the system's own. A process there escapes no limit of this one.
bool may_have_neighbours(const MemoryGroup& own) {
  if (own.group.parent_path() == own.group.root_path()) return false;  // or it is the root itself
  std::string limit;
  std::ifstream(own.folder() / "memory.max") >> limit;
  return limit == "max" && gives_memory_below(own.folder().parent_path());
}

void remove_left_groups_in(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::string maker = name.substr(std::strlen(prefix));  // its pid, then "-..."
    const std::string pid = maker.substr(0, maker.find('-'));
    if (!std::filesystem::exists("/proc/" + pid)) ::rmdir(entry->path().c_str());
  }
}

}  // namespace

Result<std::unique_ptr<MemoryLimit>> MemoryLimit::create(const std::string& name,
                                                         std::uint64_t bytes) {
  Error last = fail(ErrorCode::unsupported, "there is no memory controller of control groups");
  for (const MemoryGroup& own : memory_groups()) {
    if (!std::filesystem::exists(own.folder())) continue;
    auto made = create_in(own.folder(), name, bytes);
    if (made.ok()) return made;
    if (may_have_neighbours(own)) {
      auto beside = create_in(own.folder().parent_path(), name, bytes);
      if (beside.ok()) return beside;
    }
    if (last.code != ErrorCode::permission_denied) last = std::move(made).error();
  }
  return last;
}

Result<std::unique_ptr<MemoryLimit>> MemoryLimit::create_in(const std::filesystem::path& parent,
                                                            const std::string& name,
                                                            std::uint64_t bytes) {
  const bool is_v1 = std::filesystem::exists(parent / "memory.limit_in_bytes");
  if (!is_v1) {
    if (!std::filesystem::exists(parent / "cgroup.subtree_control")) {
      return fail(ErrorCode::unsupported, "{} is no control group that counts memory",
                  parent.string());
    }
    TROUPE_CHECK(give_memory_to_groups_below(parent));
  }
  const std::filesystem::path folder = parent / (prefix + name);
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return fail(ErrorCode::permission_denied, "cannot make the control group {}: {}",
                folder.string(), std::strerror(errno));
  }
  std::unique_ptr<MemoryLimit> limit(new MemoryLimit(folder));
  const char* file = is_v1 ? "memory.limit_in_bytes" : "memory.max";
  if (const int why = write_control(folder / file, std::to_string(bytes)); why != 0) {
    return fail(ErrorCode::permission_denied, "cannot write {}: {}", (folder / file).string(),
                std::strerror(why));
  }
  // What does not fit is not to be swapped out; not there without swap or its accounting.
  (void)(is_v1 ? write_control(folder / "memory.memsw.limit_in_bytes", std::to_string(bytes))
               : write_control(folder / "memory.swap.max", "0"));
  return limit;
}

MemoryLimit::~MemoryLimit() { ::rmdir(folder_.c_str()); }

std::optional<std::string> MemoryLimit::overrun() const {
  const auto kills = oom_kills_in(folder_);
  if (!kills || kills->count == 0) return std::nullopt;
  return kills->source;
}

void remove_left_memory_groups() {
  for (const MemoryGroup& own : memory_groups()) {
    remove_left_groups_in(own.folder());
    if (may_have_neighbours(own)) remove_left_groups_in(own.folder().parent_path());
  }
}

std::optional<std::uint64_t> own_memory_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::optional<std::uint64_t> bytes;
  for (std::string line; std::getline(file, line);) {
    for (const std::string_view name : {"RssAnon:", "VmSwap:"}) {
      if (!line.starts_with(name)) continue;
      bytes = bytes.value_or(0) + std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;
    }
  }
  return bytes;
}

}  // namespace troupe
