#include "models/checkpoint/shard_writer.hpp"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "models/checkpoint/safetensors_header.hpp"
#include "runtime/base/sync.hpp"
#include "runtime/base/write_all.hpp"

namespace troupe {
namespace {

std::filesystem::path unfinished_name(std::filesystem::path path) { return path += ".unfinished"; }

std::string header_of(std::span<const TensorSpec> specs) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    header[spec.name] = {{"dtype", spec.type},
                         {"shape", spec.extents},
                         {"data_offsets", {offset, offset + spec.bytes}}};
    offset += spec.bytes;
  }
  return safetensors_header(header);
}

}  // namespace

Result<ShardWriter> ShardWriter::create(const std::filesystem::path& path,
                                        std::span<const TensorSpec> specs) {
  const auto unfinished = unfinished_name(path);
  const int file = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return fail_errno(errno, "cannot make " + unfinished.string());
  const std::string header = header_of(specs);
  std::uint64_t bytes = header.size();
  for (const TensorSpec& spec : specs) bytes += spec.bytes;
  ShardWriter writer(path, file, bytes);
  TROUPE_CHECK(writer.append(std::as_bytes(std::span(header))));
  return writer;
}

ShardWriter::ShardWriter(ShardWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      missing_(other.missing_) {}

ShardWriter::~ShardWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(unfinished().c_str());
}

std::filesystem::path ShardWriter::unfinished() const { return unfinished_name(path_); }

Result<void> ShardWriter::append(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_) {
    return fail(ErrorCode::internal, "{}: more bytes than its header says", path_.string());
  }
  missing_ -= bytes.size();
  return write_all(file_, bytes, "cannot write " + path_.string());
}

Result<void> ShardWriter::finish() {
  if (missing_ > 0) {
    return fail(ErrorCode::internal, "{}: {} bytes are missing", path_.string(), missing_);
  }
  TROUPE_CHECK(sync_file(file_, path_.string()));
  if (::close(std::exchange(file_, -1)) != 0) {
    return fail_errno(errno, "cannot write " + path_.string());
  }
  if (std::rename(unfinished().c_str(), path_.c_str()) != 0) {
    return fail_errno(errno, "cannot rename to " + path_.string());
  }
  return sync_names_in(path_.parent_path().string());
}

}  // namespace troupe
