#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// How many mappings of objects this process has now: segments of its own, and those of others.
std::size_t object_mappings();
/// How many segments of its own may bring them to: three quarters of vm.max_map_count, which all
/// mappings of the process count against.
std::size_t max_object_mappings();

/// A memfd that this process has mapped for writing; no other process can, nor change its size
/// (F_SEAL_FUTURE_WRITE, F_SEAL_SHRINK, F_SEAL_GROW).
class Segment {
 public:
  static Result<std::shared_ptr<Segment>> create(std::size_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  std::uint64_t id() const { return id_; }
  int fd() const { return fd_.get(); }

 private:
  friend class SegmentPool;
  Segment() = default;
  UniqueFd fd_;
  std::span<std::byte> bytes_;
  std::uint64_t id_ = 0;  ///< within the process
  std::function<void()> on_end_;
};

/// The segments of one process. Those that are free keep their pages, so that they are filled
/// without page faults. Callable from any thread.
class SegmentPool {
 public:
  /// `charge` is told the bytes of segments that come (it may refuse) and go (negative).
  using Charge = std::function<bool(std::int64_t bytes)>;
  /// `max_mappings`: see max_object_mappings.
  explicit SegmentPool(Charge charge, std::size_t max_mappings = max_object_mappings())
      : charge_(std::move(charge)), max_mappings_(max_mappings) {}

  /// The size of segments for so many bytes: at most an eighth more, and whole pages.
  static std::size_t size_for(std::size_t bytes);

  /// A free segment with room for `bytes`, or a new one; null if charge refuses that, or all
  /// mappings are taken. Errors: io, resource_exhausted.
  Result<std::shared_ptr<Segment>> take(std::size_t bytes);
  /// Keeps a segment that nobody reads any more for the next take.
  void give_back(std::shared_ptr<Segment> segment);
  /// Frees all free segments; returns their bytes.
  std::size_t trim();
  bool has_all_mappings() const { return object_mappings() >= max_mappings_; }
  bool has_spare() const {
    const std::lock_guard lock(mutex_);
    return !free_.empty();
  }
  /// The descriptor of a living segment, duplicated.
  UniqueFd open(std::uint64_t id) const;

 private:
  const Charge charge_;
  const std::size_t max_mappings_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<std::shared_ptr<Segment>>> free_;  ///< by size
  struct Registry {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, const Segment*> living;
  };
  std::shared_ptr<Registry> registry_ = std::make_shared<Registry>();
};

/// A segment of another process, mapped for reading.
class MappedSegment {
 public:
  /// Maps the first `bytes`. Errors: invalid_argument if the descriptor is none of a Segment; io.
  static Result<std::shared_ptr<MappedSegment>> map(const UniqueFd& fd, std::size_t bytes);
  ~MappedSegment();
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }
  std::function<void()> on_end;  ///< called after it is unmapped

 private:
  MappedSegment() = default;
  std::span<const std::byte> bytes_;
};

}  // namespace troupe
