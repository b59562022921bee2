#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// A region of memory that several processes of one node map, each at its own address. It is a
/// memfd: it has no name in any file system, and is freed when the last process that holds it ends,
/// in whatever way. It is shared by passing the descriptor (inheritance or SCM_RIGHTS).
///
/// Movable; the address stays the same over a move. Starts zeroed. The size is sealed, so no
/// process can shrink the region under another. The classes that lay it out (ShmCollectives,
/// ShmBroadcastWriter) define what the bytes mean and who may write when.
class SharedMemory {
 public:
  /// Makes a region of `bytes` (> 0) zeroes. Pages are taken at first touch. Errors:
  /// invalid_argument for 0 bytes, resource_exhausted or io from the system.
  static Result<SharedMemory> create(std::size_t bytes);

  /// Maps a region that another process created; owns `fd` from here on. Errors: invalid_argument
  /// if `fd` is no memfd of SharedMemory (its size is not sealed) or empty, io from the system.
  static Result<SharedMemory> map(UniqueFd fd);

  SharedMemory() = default;  ///< holds nothing: bytes() is empty and fd() is -1
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// All bytes, page aligned, read-write. Valid while this object lives.
  std::span<std::byte> bytes() const { return bytes_; }
  /// The descriptor to pass on; it stays owned by this object and is close-on-exec.
  int fd() const { return fd_.get(); }
  /// A second descriptor of the same region, owned by the caller; for map() or for a message.
  Result<UniqueFd> duplicate_fd() const;

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes);
  static Result<SharedMemory> map_sized(UniqueFd fd, std::size_t bytes);

  UniqueFd fd_;
  std::span<std::byte> bytes_;
};

}  // namespace troupe
