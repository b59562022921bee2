#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// "SIZE bytes, hash HASH" of a file's content (hash_128). Errors: io; cancelled.
Result<std::string> content_mark(const std::string& path, const KeepGoing& keep_going = nullptr);

/// What sampled_mark reads of a large file: its first bytes and pieces evenly spaced to its end.
struct MarkSamples {
  std::uint64_t whole_bytes = std::uint64_t{16} << 20;  ///< files up to this are read as a whole
  std::uint64_t first_bytes = std::uint64_t{1} << 20;
  std::uint64_t piece_bytes = 4096;
  std::uint64_t pieces = 256;
};

/// The same as content_mark for a large file of which only samples are read. Errors: io.
Result<std::string> sampled_mark(const std::string& path, const MarkSamples& samples = {});

}  // namespace troupe
