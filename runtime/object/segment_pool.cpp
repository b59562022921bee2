#include "runtime/object/segment_pool.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <fstream>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace troupe {
namespace {

constexpr std::size_t page = 4096;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

std::atomic<std::size_t>& mappings() {
  static std::atomic<std::size_t> count = 0;
  return count;
}

Result<void*> map_object(std::size_t bytes, int protection, int fd) {
  void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    return fail_errno(errno, fmt::format("cannot map {} bytes of an object, beside {} others (each "
                                         "is a mapping of its own, see vm.max_map_count)",
                                         bytes, object_mappings()));
  }
  ++mappings();
  return at;
}

void unmap_object(void* at, std::size_t bytes) {
  ::munmap(at, bytes);
  --mappings();
}

}  // namespace

std::size_t object_mappings() { return mappings(); }

std::size_t max_object_mappings() {
  static const std::size_t most = [] {
    std::size_t all = 65530;  // as Linux has it if nobody has changed it
    std::ifstream("/proc/sys/vm/max_map_count") >> all;
    return all / 4 * 3;
  }();
  return most;
}

Result<std::shared_ptr<Segment>> Segment::create(std::size_t bytes) {
  static std::atomic<std::uint64_t> next = 1;
  std::shared_ptr<Segment> segment(new Segment());
  segment->fd_ = UniqueFd(::memfd_create("troupe object", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment->fd_) return fail_errno(errno, "cannot create an object's memory (memfd_create)");
  const int fd = segment->fd_.get();
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno, fmt::format("cannot size an object's memory to {} bytes", bytes));
  }
  TROUPE_TRY(void* const at, map_object(bytes, PROT_READ | PROT_WRITE, fd));
  segment->bytes_ = {static_cast<std::byte*>(at), bytes};
  if (::fcntl(fd, F_ADD_SEALS, seals) != 0) {
    return fail_errno(errno, "cannot seal an object's memory (Linux 5.1 or later is needed)");
  }
  // All pages at once cost less than a fault for each. Without memory it fails here; on kernels
  // before 5.14 it does nothing, and pages come at first touch.
  if (::madvise(at, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return fail(ErrorCode::resource_exhausted, "no memory for an object of {} bytes", bytes);
  }
  segment->id_ = next++;
  return segment;
}

Segment::~Segment() {
  if (on_end_) on_end_();  // nobody finds it from here on
  if (!bytes_.empty()) unmap_object(bytes_.data(), bytes_.size());
}

std::size_t SegmentPool::size_for(std::size_t bytes) {
  const std::size_t step = std::max(page, std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8);
  return (bytes + step - 1) / step * step;
}

Result<std::shared_ptr<Segment>> SegmentPool::take(std::size_t bytes) {
  const std::size_t size = size_for(bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto found = free_.find(size);
    if (found != free_.end()) {
      auto segment = std::move(found->second.back());
      found->second.pop_back();
      if (found->second.empty()) free_.erase(found);
      return segment;
    }
  }
  if (has_all_mappings()) return std::shared_ptr<Segment>();
  const auto signed_size = static_cast<std::int64_t>(size);
  if (!charge_(signed_size)) return std::shared_ptr<Segment>();
  auto made = Segment::create(size);
  if (!made.ok()) {
    (void)charge_(-signed_size);
    return made;
  }
  Segment* const segment = made->get();
  const std::lock_guard lock(registry_->mutex);
  registry_->living.emplace(segment->id(), segment);
  segment->on_end_ = [registry = registry_, id = segment->id(), charge = charge_, signed_size] {
    {
      const std::lock_guard inner(registry->mutex);
      registry->living.erase(id);
    }
    (void)charge(-signed_size);
  };
  return made;
}

void SegmentPool::give_back(std::shared_ptr<Segment> segment) {
  const std::lock_guard lock(mutex_);
  free_[segment->bytes().size()].push_back(std::move(segment));
}

std::size_t SegmentPool::trim() {
  std::map<std::size_t, std::vector<std::shared_ptr<Segment>>> freed;
  {
    const std::lock_guard lock(mutex_);
    freed.swap(free_);
  }
  std::size_t bytes = 0;
  for (const auto& [size, segments] : freed) bytes += size * segments.size();
  return bytes;
}

UniqueFd SegmentPool::open(std::uint64_t id) const {
  const std::lock_guard lock(registry_->mutex);
  const auto found = registry_->living.find(id);
  if (found == registry_->living.end()) return {};
  return UniqueFd(::fcntl(found->second->fd(), F_DUPFD_CLOEXEC, 0));
}

Result<std::shared_ptr<MappedSegment>> MappedSegment::map(const UniqueFd& fd, std::size_t bytes) {
  const int found = ::fcntl(fd.get(), F_GET_SEALS);
  struct stat status{};
  if (found < 0 || (found & seals) != seals || ::fstat(fd.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < bytes) {
    return fail(ErrorCode::invalid_argument, "a descriptor is none of an object of {} bytes",
                bytes);
  }
  TROUPE_TRY(void* const at, map_object(bytes, PROT_READ, fd.get()));
  std::shared_ptr<MappedSegment> mapped(new MappedSegment());
  mapped->bytes_ = {static_cast<const std::byte*>(at), bytes};
  return mapped;
}

MappedSegment::~MappedSegment() {
  unmap_object(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (on_end) on_end();
}

}  // namespace troupe
