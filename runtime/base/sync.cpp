#include "runtime/base/sync.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/write_all.hpp"

namespace troupe {

Result<void> sync_file(int file, const std::string& name) {
  if (::fsync(file) == 0 || errno == EINVAL) return {};  // some file systems cannot sync a folder
  return fail_errno(errno, "cannot write " + name + " to the disk");
}

Result<void> sync_names_in(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return fail_errno(errno, "cannot open the folder " + path);
  Result<void> synced = sync_file(file, path);
  ::close(file);
  return synced;
}

Result<void> write_synced(const std::string& path, std::string_view bytes) {
  const std::string fresh = path + ".new";
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return fail_errno(errno, "cannot make " + fresh);
  auto written = write_all(file, std::as_bytes(std::span(bytes)), "cannot write " + path);
  if (written.ok()) written = sync_file(file, path);
  ::close(file);
  if (written.ok() && std::rename(fresh.c_str(), path.c_str()) != 0) {
    written = fail_errno(errno, "cannot write " + path);
  }
  if (written.ok()) return sync_names_in(std::filesystem::path(path).parent_path().string());
  ::unlink(fresh.c_str());
  return written;
}

}  // namespace troupe
