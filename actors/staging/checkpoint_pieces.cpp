#include "actors/staging/checkpoint_pieces.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "actors/staging/stage_folder.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/sync.hpp"
#include "runtime/base/write_all.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

Result<void> check_name(const std::string& name) {
  if (!name.empty() && name != "." && name != ".." && name.find('/') == name.npos) return {};
  return fail(ErrorCode::invalid_argument, "'{}' is no name of a file in a checkpoint", name);
}

Hash128 hash_of(const Bytes& bytes) {
  return hash_128({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

constexpr const char* part_suffix = ".part-";

}  // namespace

Result<CheckpointPiece> read_piece(const std::string& folder, const std::string& name,
                                   std::uint64_t offset) {
  TROUPE_CHECK(check_name(name));
  const std::string path = folder + "/" + name;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, fmt::format("cannot read {}", path));
  CheckpointPiece piece;
  piece.bytes.resize(piece_bytes);
  std::size_t filled = 0;
  while (filled < piece.bytes.size()) {
    const ssize_t count = ::pread(file.get(), piece.bytes.data() + filled,
                                  piece.bytes.size() - filled, static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, fmt::format("cannot read {}", path));
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  piece.bytes.resize(filled);
  std::tie(piece.hash_high, piece.hash_low) = hash_of(piece.bytes);
  return piece;
}

Result<CheckpointCopy> CheckpointCopy::begin(const std::string& target) {
  TROUPE_CHECK(make_private_folders(fs::path(target).parent_path().string()));
  remove_abandoned(target + part_suffix);
  std::string part = name_for_this_process(target + part_suffix);
  if (::mkdtemp(part.data()) == nullptr) {
    return fail_errno(errno, fmt::format("cannot make the folder {}", part));
  }
  return CheckpointCopy(target, std::move(part));
}

CheckpointCopy::CheckpointCopy(CheckpointCopy&& other) noexcept
    : target_(std::move(other.target_)),
      part_(std::exchange(other.part_, {})),
      file_name_(std::move(other.file_name_)),
      file_(std::move(other.file_)) {}

CheckpointCopy::~CheckpointCopy() {
  std::error_code ignored;
  if (!part_.empty()) fs::remove_all(part_, ignored);
}

Result<void> CheckpointCopy::begin_file(const CheckpointFile& file) {
  TROUPE_CHECK(check_name(file.name));
  TROUPE_CHECK(end_file());
  file_name_ = part_ + "/" + file.name;
  file_ = UniqueFd(::open(file_name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file_) return fail_errno(errno, fmt::format("cannot write {}", file_name_));
  if (file.bytes == 0) return {};
  const int error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(file.bytes));
  if (error == 0 || error == EOPNOTSUPP || error == EINVAL) return {};
  return fail(error == ENOSPC ? ErrorCode::resource_exhausted : ErrorCode::io,
              "cannot write {} bytes to {}: {}", file.bytes, file_name_,
              std::generic_category().message(error));
}

Result<void> CheckpointCopy::end_file() {
  const UniqueFd ended = std::move(file_);
  return ended ? sync_file(ended.get(), file_name_) : Result<void>();
}

Result<void> CheckpointCopy::append(const CheckpointPiece& piece) {
  if (hash_of(piece.bytes) != Hash128(piece.hash_high, piece.hash_low)) {
    return fail(ErrorCode::corrupt_data, "a piece for {} came with other bytes than were sent",
                file_name_);
  }
  return write_all(file_.get(), std::as_bytes(std::span(piece.bytes)),
                   fmt::format("cannot write {}", file_name_));
}

Result<void> CheckpointCopy::finish(const std::vector<CheckpointFile>& files) {
  TROUPE_CHECK(end_file());
  const CheckpointFacts copy = look_at_checkpoint(part_);
  if (!copy.problem.empty() || !are_equal(copy.files, files)) {
    return fail(ErrorCode::corrupt_data, "the copy in {} is not what was sent{}{}", part_,
                copy.problem.empty() ? "" : ": ", copy.problem);
  }
  TROUPE_CHECK(sync_names_in(part_));
  std::error_code ignored;
  if (!fs::exists(target_, ignored)) fs::remove(target_, ignored);  // a link to what is gone
  if (::rename(part_.c_str(), target_.c_str()) == 0) {
    part_.clear();
    return sync_names_in(fs::path(target_).parent_path().string());
  }
  if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) {
    return fail_errno(errno, fmt::format("cannot rename {} to {}", part_, target_));
  }
  if (are_equal(look_at_checkpoint(target_).files, files) && other_writer_of(target_).empty()) {
    return {};
  }
  return fail(ErrorCode::corrupt_data, "{} is there and is another thing than the copy: remove it",
              target_);
}

Result<void> link_checkpoint(const std::string& folder, const std::string& target) {
  // The link is made in a folder of its own, from which it moves to its place at once.
  TROUPE_TRY(const CheckpointCopy copy, CheckpointCopy::begin(target));
  const std::string link = copy.part() + "/link";
  std::error_code error;
  fs::create_directory_symlink(fs::absolute(folder), link, error);
  if (error) return fail(ErrorCode::io, "cannot make {} a link: {}", link, error.message());
  if (::rename(link.c_str(), target.c_str()) == 0 || errno == EISDIR) return {};
  return fail_errno(errno, fmt::format("cannot make {} a link", target));
}

bool are_equal(const std::vector<CheckpointFile>& a, const std::vector<CheckpointFile>& b) {
  return std::ranges::equal(a, b, [](const CheckpointFile& x, const CheckpointFile& y) {
    return x.name == y.name && x.bytes == y.bytes && x.mark == y.mark;
  });
}

}  // namespace troupe
