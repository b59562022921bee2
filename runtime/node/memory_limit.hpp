#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// A memory control group for one process: the kernel ends the process if it uses more, and no
/// other. It lies below the group of this process; with version 2, where groups with processes have
/// none below them that count memory, beside it, if its parent allows that and it has no limit
/// itself. The destructor removes the group, which
/// must be empty. Not synchronised.
class MemoryLimit {
 public:
  /// Makes the group `name`. Errors say what is missing: permission_denied, or unsupported where
  /// there is no memory controller or version 2 may not give it to groups below.
  static Result<std::unique_ptr<MemoryLimit>> create(const std::string& name, std::uint64_t bytes);
  /// The same below the folder of a group.
  static Result<std::unique_ptr<MemoryLimit>> create_in(const std::filesystem::path& parent,
                                                        const std::string& name,
                                                        std::uint64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  /// The file to which a process writes "0" to be in it.
  std::filesystem::path members_file() const { return folder_ / "cgroup.procs"; }
  /// The file that counts the processes that were ended as the memory had run out, if there are.
  std::optional<std::string> overrun() const;

 private:
  explicit MemoryLimit(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const std::filesystem::path folder_;
};

/// Removes groups without processes that agents which were killed have left.
void remove_left_memory_groups();

/// Memory that a process has for itself, in bytes, with what is swapped out; none if it has ended.
std::optional<std::uint64_t> own_memory_of(int pid);

}  // namespace troupe
