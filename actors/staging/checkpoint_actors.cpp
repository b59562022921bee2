#include "actors/staging/checkpoint_actors.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <thread>

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

/// For one piece to come, behind those of other nodes.
constexpr std::chrono::seconds piece_limit{60};
/// For a network file system to show what another node has made: NFS looks again after 60 s.
constexpr std::chrono::seconds cache_limit{90};
constexpr std::chrono::milliseconds look_turn{100};
/// Pieces on their way to a node at a time: 4 MiB, enough for 400 MB/s at 10 ms.
constexpr std::size_t pieces_under_way = 4;

Result<void> copy_file(const ActorHandle<CheckpointSource>& source, std::uint64_t folder,
                       const CheckpointFile& file, CheckpointCopy& copy) {
  TROUPE_CHECK(copy.begin_file(file));
  std::deque<Future<CheckpointPiece>> under_way;
  std::uint64_t asked = 0;
  std::uint64_t written = 0;
  while (written < file.bytes) {
    while (asked < file.bytes && under_way.size() < pieces_under_way) {
      under_way.push_back(source.call<&CheckpointSource::read>(folder, file.name, asked));
      asked += piece_bytes;
    }
    TROUPE_TRY(const CheckpointPiece piece, under_way.front().get(piece_limit));
    under_way.pop_front();
    const std::uint64_t expected = std::min(piece_bytes, file.bytes - written);
    if (piece.bytes.size() != expected) {
      return fail(ErrorCode::corrupt_data, "{} has changed while it was copied", file.name);
    }
    TROUPE_CHECK(copy.append(piece));
    written += expected;
  }
  return {};
}

}  // namespace

Result<CheckpointPiece> CheckpointSource::read(std::uint64_t folder, const std::string& name,
                                               std::uint64_t offset) {
  if (folder >= folders_.size()) {
    return fail(ErrorCode::invalid_argument, "there is no checkpoint number {}", folder);
  }
  TROUPE_TRY(CheckpointPiece piece, read_piece(folders_[folder], name, offset));
  given_bytes_ += piece.bytes.size();
  return piece;
}

Result<void> CheckpointCopier::copy(const ActorHandle<CheckpointSource>& source,
                                    std::uint64_t folder, const std::vector<CheckpointFile>& files,
                                    const std::string& target) {
  TROUPE_TRY(CheckpointCopy copy, CheckpointCopy::begin(target));
  for (const CheckpointFile& file : files) TROUPE_CHECK(copy_file(source, folder, file, copy));
  return copy.finish(files);
}

Result<void> CheckpointCopier::link(const std::string& folder, const std::string& target) {
  return link_checkpoint(folder, target);
}

Result<std::string> CheckpointCopier::mark(const std::string& folder) {
  TROUPE_TRY(FolderMark made, FolderMark::make(folder));
  mark_.emplace(std::move(made));
  return mark_->name();
}

std::vector<std::string> CheckpointCopier::marks_in(const std::string& folder,
                                                    const std::vector<std::string>& marks) {
  std::vector<std::string> found;
  std::ranges::copy_if(marks, std::back_inserter(found),
                       [&](const std::string& name) { return has_mark(folder, name); });
  return found;
}

Result<void> CheckpointCopier::wait_for_copy(const std::vector<CheckpointFile>& files,
                                             const std::string& target) {
  Deadline deadline(cache_limit);
  while (!are_equal(look_at_checkpoint(target).files, files)) {
    if (deadline.is_over()) {
      return fail(ErrorCode::timed_out,
                  "another node has copied it to {}, but it is not seen here within {} s", target,
                  cache_limit.count());
    }
    std::this_thread::sleep_for(look_turn);
  }
  const std::string distrust = other_writer_of(target);
  if (distrust.empty()) return {};
  return fail(ErrorCode::permission_denied, "{}", distrust);
}

void add_staging_actors(ActorTypes& types) { types.add<CheckpointCopier>(); }

}  // namespace troupe
