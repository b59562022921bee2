#include "runtime/memory/shared_memory.hpp"

#include <utility>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Result<SharedMemory> SharedMemory::create(std::size_t bytes) {
  if (bytes == 0) return fail(ErrorCode::invalid_argument, "shared memory of 0 bytes");
  UniqueFd fd(::memfd_create("troupe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "cannot create shared memory (memfd_create)");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno, fmt::format("cannot size shared memory to {} bytes", bytes));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0) {
    return fail_errno(errno, "cannot seal the size of shared memory");
  }
  return map_sized(std::move(fd), bytes);
}

Result<SharedMemory> SharedMemory::map(UniqueFd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & size_seals) != size_seals) {
    return fail(ErrorCode::invalid_argument,
                "descriptor {} is no shared memory of sealed size; pass one made by "
                "SharedMemory::create",
                fd.get());
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail_errno(errno, "cannot stat shared memory");
  if (status.st_size <= 0) return fail(ErrorCode::invalid_argument, "shared memory is empty");
  return map_sized(std::move(fd), static_cast<std::size_t>(status.st_size));
}

Result<SharedMemory> SharedMemory::map_sized(UniqueFd fd, std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return fail_errno(errno, fmt::format("cannot map {} bytes of shared memory", bytes));
  }
  return SharedMemory(std::move(fd), {static_cast<std::byte*>(at), bytes});
}

SharedMemory::SharedMemory(UniqueFd fd, std::span<std::byte> bytes)
    : fd_(std::move(fd)), bytes_(bytes) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<UniqueFd> SharedMemory::duplicate_fd() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno(errno, "cannot duplicate the descriptor of shared memory");
  return copy;
}

}  // namespace troupe
