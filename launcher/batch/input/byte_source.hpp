#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/compression/compression.hpp"
#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// The path that means standard input, or standard output.
inline constexpr std::string_view standard_stream = "-";

/// The bytes of a file, a pipe or standard input, unpacked if their first bytes say gzip or zstd.
/// One thread at a time.
class ByteSource {
 public:
  /// Opens `path`; "-" is standard input. A FIFO is opened without waiting for its writer. At most
  /// `max_bytes` (as packed) of a regular file are read. Errors: not_found, permission_denied,
  /// invalid_argument (a folder), io, with a message that names the file and `role`, e.g. "input".
  static Result<ByteSource> open(const std::string& path, std::string_view role,
                                 std::uint64_t max_bytes = UINT64_MAX);

  /// Waits at most `timeout` for bytes (regular files never wait). Returns the number of bytes put
  /// into `out` (not empty), 0 at the end, nullopt if none came in time. Errors: io; corrupt_data,
  /// also for packed data that ends in the middle.
  Result<std::optional<std::size_t>> read(std::span<char> out, std::chrono::milliseconds timeout);

 private:
  enum class Filled { some, end, not_yet };

  ByteSource(UniqueFd fd, std::string path, bool is_regular, std::uint64_t max_bytes);
  /// Reads packed bytes; appends to the buffer if the kind of packing is not known yet.
  Result<Filled> fill(std::chrono::milliseconds timeout);
  Result<void> decide_packing();

  UniqueFd fd_;
  std::string path_;
  bool is_regular_ = true;
  std::uint64_t bytes_left_ = 0;
  bool decided_ = false;
  bool at_end_ = false;          ///< of the packed bytes
  bool between_members_ = true;  ///< true where packed data may end
  std::optional<Decompressor> unpacker_;
  std::vector<char> buffer_;  ///< packed bytes, or the first bytes of unpacked input
  std::size_t begin_ = 0;     ///< start of the unread bytes in buffer_
  std::size_t end_ = 0;
};

/// True if `path` can be read or written a second time: a regular file, or not existing yet.
bool is_rereadable(const std::string& path);

}  // namespace troupe
