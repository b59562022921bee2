#pragma once

#include <filesystem>
#include <vector>

namespace troupe {

/// A control group of this process that counts memory.
struct MemoryGroup {
  std::filesystem::path root;   ///< the mount point of version 2, or of version 1's controller
  std::filesystem::path group;  ///< "/a/b"
  std::filesystem::path folder() const { return root / group.relative_path(); }
};

/// Those of this process, of version 1 and of version 2; where there is no such controller the
/// folder has no files of it.
std::vector<MemoryGroup> memory_groups();

}  // namespace troupe
