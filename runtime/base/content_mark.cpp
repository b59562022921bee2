#include "runtime/base/content_mark.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

/// Adds the next `bytes` of a file to a hash, or fewer at its end.
void add_bytes(std::ifstream& file, std::uint64_t bytes, std::string& buffer, Hasher128& hasher) {
  buffer.resize(bytes);
  file.read(buffer.data(), static_cast<std::streamsize>(bytes));
  hasher.add(std::string_view(buffer).substr(0, static_cast<std::size_t>(file.gcount())));
}

std::string mark(std::uint64_t size, const Hasher128& hasher) {
  return fmt::format("{} bytes, hash {}", size, to_hex(hasher.hash()));
}

}  // namespace

Result<std::string> content_mark(const std::string& path, const KeepGoing& keep_going) {
  std::ifstream file(path, std::ios::binary);
  std::error_code problem;
  const auto size = std::filesystem::file_size(path, problem);
  if (!file || problem) return fail(ErrorCode::io, "cannot read {}", path);
  std::string buffer;
  Hasher128 hasher;
  while (file) {
    TROUPE_CHECK(check_goes_on(keep_going, path));
    add_bytes(file, std::uint64_t{1} << 20, buffer, hasher);
  }
  if (file.bad()) return fail(ErrorCode::io, "cannot read {}", path);
  return mark(size, hasher);
}

Result<std::string> sampled_mark(const std::string& path, const MarkSamples& samples) {
  std::ifstream file(path, std::ios::binary);
  std::error_code problem;
  const auto size = std::filesystem::file_size(path, problem);
  if (!file || problem) return fail(ErrorCode::io, "cannot read {}", path);
  if (size <= samples.whole_bytes) return content_mark(path);
  std::string buffer;
  Hasher128 hasher;
  add_bytes(file, samples.first_bytes, buffer, hasher);
  for (std::uint64_t i = 1; i <= samples.pieces; ++i) {
    file.seekg(static_cast<std::streamoff>((size - samples.piece_bytes) / samples.pieces * i));
    add_bytes(file, samples.piece_bytes, buffer, hasher);
  }
  if (!file) return fail(ErrorCode::io, "cannot read {}", path);
  return mark(size, hasher);
}

}  // namespace troupe
