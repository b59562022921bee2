#pragma once

#include <string>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe {

/// Makes a folder and its parents; those that are new are this user's alone. Errors: io.
Result<void> make_private_folders(const std::string& folder);

/// Returns a name for mkdtemp or mkstemp that begins with `prefix` and tells which process has made
/// it, so that remove_abandoned finds it.
std::string name_for_this_process(const std::string& prefix);

/// Removes what processes made under name_for_this_process(prefix) and left when they were killed:
/// those of this kernel's boot and pid namespace. What others left stays: they may still run.
void remove_abandoned(const std::string& prefix);

/// An empty file in a folder, by which nodes find out which of them share it: on a network file
/// system nothing else of a folder is the same on all of them. The destructor removes it.
class FolderMark {
 public:
  /// Makes the folder, if it is not there, and the mark. Errors: io.
  static Result<FolderMark> make(const std::string& folder);
  FolderMark(FolderMark&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  FolderMark& operator=(FolderMark&& other) noexcept;
  ~FolderMark();

  /// The file's name in the folder, which no other mark has.
  std::string name() const;

 private:
  explicit FolderMark(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

/// Whether the mark of this name is in the folder. A network file system is asked each time: it
/// answers from its cache only for names that were looked for before.
bool has_mark(const std::string& folder, const std::string& name);

}  // namespace troupe
