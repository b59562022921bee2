#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe::test {

/// A file system of `bytes` bytes and 200 files, mounted at an empty folder. Only this thread, and
/// the threads and processes it starts from then on, see it; it ends with them. The folder must
/// outlive the object. Needs root.
class SmallDisk {
 public:
  /// Errors: unsupported where nothing can be mounted, with the reason.
  static Result<std::unique_ptr<SmallDisk>> mount(std::filesystem::path folder,
                                                  std::uint64_t bytes) {
    const std::string size = fmt::format("size={},nr_inodes=200", bytes);
    const bool is_mounted = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            ::mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (!is_mounted) {
      return fail(ErrorCode::unsupported, "a small disk wants a mount, which is refused: {}",
                  std::strerror(errno));
    }
    return std::unique_ptr<SmallDisk>(new SmallDisk(std::move(folder)));
  }
  ~SmallDisk() { ::umount2(folder_.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  /// Takes all room but about `left` bytes, in whole pages, with a file of its own.
  void fill(std::uint64_t left = 0) const {
    const auto room = std::filesystem::space(folder_).available;
    const UniqueFd file(::open(filler().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!file) throw std::runtime_error(filler().string() + ": " + std::strerror(errno));
    if (room <= left) return;
    const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(room - left));
    if (error != 0) throw std::runtime_error(filler().string() + ": " + std::strerror(error));
  }
  /// Removes that file.
  void make_room() const { std::filesystem::remove(filler()); }

 private:
  explicit SmallDisk(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path filler() const { return folder_ / "filler"; }

  std::filesystem::path folder_;
};

}  // namespace troupe::test
