#include "launcher/bench/weights/reading.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/checkpoint/files_with_extension.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t piece_bytes = std::size_t{4} << 20;
constexpr std::int64_t copied_bytes = std::int64_t{256} << 20;
constexpr int copies = 8;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

class OpenFile {
 public:
  static Result<OpenFile> open(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return fail_errno(errno, fmt::format("cannot open {}", path.string()));
    return OpenFile(file);
  }
  OpenFile(OpenFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  int get() const { return file_; }
  std::size_t bytes() const {
    struct stat status{};
    return ::fstat(file_, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  }

 private:
  explicit OpenFile(int file) : file_(file) {}
  int file_;
};

}  // namespace

Result<std::vector<std::filesystem::path>> weight_files(const std::filesystem::path& folder) {
  auto files = files_with_extension(folder, {".safetensors"});
  if (!files.empty()) return files;
  return fail(ErrorCode::not_found, "{}: no safetensors files", folder.string());
}

int reading_threads() { return std::clamp(usable_cpu_count(), 2, 8); }

Result<double> measure_reading(std::span<const std::filesystem::path> paths, int threads) {
  struct Piece {
    int file;
    std::size_t offset;
  };
  std::vector<OpenFile> files;
  std::vector<Piece> pieces;
  for (const auto& path : paths) {
    TROUPE_TRY(OpenFile file, OpenFile::open(path));
    for (std::size_t at = 0; at < file.bytes(); at += piece_bytes)
      pieces.push_back({file.get(), at});
    files.push_back(std::move(file));
  }
  std::atomic<std::size_t> next = 0, bytes = 0;
  std::atomic<bool> failed = false;
  const auto began = Clock::now();
  std::vector<std::thread> readers;
  for (int i = 0; i < threads; ++i) {
    readers.emplace_back([&] {
      std::vector<char> memory(piece_bytes);
      for (std::size_t i = next++; i < pieces.size(); i = next++) {
        const ssize_t count = ::pread(pieces[i].file, memory.data(), memory.size(),
                                      static_cast<off_t>(pieces[i].offset));
        if (count <= 0) failed = true;
        if (count > 0) bytes += static_cast<std::size_t>(count);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  if (failed) return fail(ErrorCode::io, "a file of weights cannot be read");
  return static_cast<double>(bytes) / seconds_since(began);
}

Result<void> drop_from_cache(std::span<const std::filesystem::path> paths) {
  for (const auto& path : paths) {
    TROUPE_TRY(const OpenFile file, OpenFile::open(path));
    // Pages not yet on the disk would stay in the cache.
    if (::fsync(file.get()) != 0) return fail_errno(errno, fmt::format("fsync {}", path.string()));
    if (const int error = ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0) {
      return fail_errno(error, fmt::format("posix_fadvise {}", path.string()));
    }
  }
  return {};
}

Result<double> measure_copy(Ops& ops) {
  TROUPE_TRY(const DeviceTensor host, ops.memory().allocate_host(DType::u8, {copied_bytes}));
  TROUPE_TRY(const DeviceTensor device, ops.memory().allocate(DType::u8, {copied_bytes}));
  ops.memory().upload(host, device);
  TROUPE_CHECK(ops.stream().synchronize());
  const auto began = Clock::now();
  for (int i = 0; i < copies; ++i) ops.memory().upload(host, device);
  TROUPE_CHECK(ops.stream().synchronize());
  return static_cast<double>(copied_bytes) * copies / seconds_since(began);
}

}  // namespace troupe
