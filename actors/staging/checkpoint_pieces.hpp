#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/preflight/node_facts.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Checkpoints are copied in pieces of this size.
inline constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

/// A part of a file on its way to another node.
struct CheckpointPiece {
  Bytes bytes;
  std::uint64_t hash_high = 0;  ///< hash_128 of the bytes
  std::uint64_t hash_low = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(bytes, hash_high, hash_low);
  }
};

/// Reads the piece of a file that begins at `offset`; shorter than piece_bytes at its end only.
/// Errors: invalid_argument for a name with folders in it; io.
Result<CheckpointPiece> read_piece(const std::string& folder, const std::string& name,
                                   std::uint64_t offset);

/// Writes a copy of a checkpoint: into a folder beside `target`, which takes its place when all is
/// there and on the disk, so that a target is always whole, also after its host lost power. The
/// destructor removes what is not finished; what a killed process left, the next copy to the same
/// target from its host removes.
class CheckpointCopy {
 public:
  /// Makes the folder and its parents, for this user alone. Errors: io.
  static Result<CheckpointCopy> begin(const std::string& target);
  CheckpointCopy(CheckpointCopy&& other) noexcept;
  CheckpointCopy& operator=(CheckpointCopy&&) = delete;
  ~CheckpointCopy();

  /// Begins a file, for which room is reserved on the disk. Errors: resource_exhausted if there is
  /// none; invalid_argument; io.
  Result<void> begin_file(const CheckpointFile& file);
  /// Appends to the file. Errors: corrupt_data if the bytes are not those of the piece's hash; io.
  Result<void> append(const CheckpointPiece& piece);
  /// The folder that the copy is in until it is finished.
  const std::string& part() const { return part_; }
  /// Compares the copy with `files`, and puts it in its place; if somebody else has put one there
  /// meanwhile, that one stays. Errors: corrupt_data; io.
  Result<void> finish(const std::vector<CheckpointFile>& files);

 private:
  /// Ends the file that was begun last, if any, once its bytes are on the disk. Errors: io.
  Result<void> end_file();
  CheckpointCopy(std::string target, std::string part)
      : target_(std::move(target)), part_(std::move(part)) {}

  std::string target_;
  std::string part_;  ///< the folder until it is finished; empty: nothing to remove
  std::string file_name_;
  UniqueFd file_;
};

/// Makes `target` a link to a checkpoint's folder, with its parents, in place of a link that is
/// there; a folder that is there stays. Errors: io.
Result<void> link_checkpoint(const std::string& folder, const std::string& target);

/// Whether two lists name the same files with the same sizes and marks.
bool are_equal(const std::vector<CheckpointFile>& a, const std::vector<CheckpointFile>& b);

}  // namespace troupe
