#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Page-locked host memory for a fixed number of equal blocks. Locking takes a second for some
/// gigabytes, so it is not done at once: from the first use on, threads keep some memory locked
/// ahead of the highest block requested. Use low block numbers first.
class HostBlocks {
 public:
  struct Options {
    int device = 0;
    std::int64_t blocks = 0;      ///< at least 1
    std::size_t block_bytes = 0;  ///< at least 1
    /// Memory is locked in slabs of about this size, in whole blocks.
    std::size_t slab_bytes = std::size_t{32} << 20;
    std::size_t bytes_ahead = std::size_t{2} << 30;
    int threads = 4;
  };

  /// Locks the first slab, so that a failure shows at once. Errors: resource_exhausted, with what
  /// to do.
  static Result<std::unique_ptr<HostBlocks>> create(const Options& options);
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  /// Returns the memory of `block`, 0 <= block < blocks; waits until it is locked. Errors:
  /// resource_exhausted if it cannot be locked, or not within ten seconds.
  Result<std::byte*> at(std::int64_t block);
  /// True if the memory of `block` begins where that of block - 1 ends, so that one copy may take
  /// both.
  bool continues(std::int64_t block) const { return block % blocks_per_slab_ != 0; }

 private:
  explicit HostBlocks(const Options& options);
  std::byte* slab(std::int64_t index) const;
  std::size_t bytes_of_slab(std::int64_t index) const;
  Result<void> lock_slab(std::int64_t index) const;
  void lock_slabs();

  Options options_;
  std::int64_t blocks_per_slab_;
  std::int64_t slabs_;
  std::int64_t slabs_ahead_;
  std::size_t slab_stride_;  ///< bytes
  void* mapped_ = nullptr;   ///< reserved addresses; slabs begin at the first huge page
  std::size_t mapped_bytes_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t wanted_slabs_ = 0;
  std::int64_t begun_slabs_ = 1;
  std::set<std::int64_t> locked_later_;  ///< slabs after one that is not locked yet
  std::int64_t locked_slabs_ = 1;        ///< contiguous from the first
  std::optional<Error> error_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troupe
