#include "models/checkpoint/mapped_file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT) return fail(ErrorCode::not_found, "{}: no such file", path.string());
    return fail_errno(errno, fmt::format("cannot open {}", path.string()));
  }
  MappedFile file;
  file.path_ = path;
  file.descriptor_ = descriptor;
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) {
    return fail_errno(errno, fmt::format("cannot stat {}", path.string()));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::corrupt_data, "{}: not a regular file", path.string());
  }
  file.size_ = static_cast<std::size_t>(status.st_size);
  if (file.size_ == 0) return file;
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("cannot map {}", path.string()));
  file.data_ = static_cast<const std::byte*>(data);
  file.direct_descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  return file;
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(direct_descriptor_, other.direct_descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { swap(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  swap(other);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
  if (direct_descriptor_ >= 0) ::close(direct_descriptor_);
}

}  // namespace troupe
