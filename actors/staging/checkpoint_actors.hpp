#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/staging/checkpoint_pieces.hpp"
#include "actors/staging/stage_folder.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/methods.hpp"

namespace troupe {

/// Gives the pieces of checkpoints' files to the nodes that copy them. Lives in the launcher.
class CheckpointSource {
 public:
  using Arguments = troupe::Arguments<std::vector<std::string>>;
  /// `folders` are the checkpoints.
  CheckpointSource(ActorContext&, std::vector<std::string> folders)
      : folders_(std::move(folders)) {}

  Result<CheckpointPiece> read(std::uint64_t folder, const std::string& name, std::uint64_t offset);
  /// Bytes that were given to all nodes together.
  std::uint64_t given_bytes() { return given_bytes_; }

  static constexpr std::string_view actor_type = "CheckpointSource";
  using Methods = troupe::Methods<&CheckpointSource::read, &CheckpointSource::given_bytes>;

 private:
  const std::vector<std::string> folders_;
  std::uint64_t given_bytes_ = 0;
};

/// Copies checkpoints to its node.
class CheckpointCopier {
 public:
  explicit CheckpointCopier(ActorContext& context) : context_(context) {}

  /// Fetches the source's checkpoint number `folder`, which has these files, to the folder `target`
  /// (CheckpointCopy). A few pieces are on their way at a time. Errors: those of CheckpointCopy and
  /// read_piece; timeout if a piece does not come.
  Result<void> copy(const ActorHandle<CheckpointSource>& source, std::uint64_t folder,
                    const std::vector<CheckpointFile>& files, const std::string& target);
  /// Makes `target` a link to a copy that the node has. Errors: io.
  Result<void> link(const std::string& folder, const std::string& target);
  /// Marks a folder (FolderMark) until this actor ends, and returns the mark's name. Errors: io.
  Result<std::string> mark(const std::string& folder);
  /// Returns those of the marks that are in the folder.
  std::vector<std::string> marks_in(const std::string& folder,
                                    const std::vector<std::string>& marks);
  /// Waits until the copy that another node made in a shared folder is seen here, which a network
  /// file system may delay by a minute. Errors: timed_out; permission_denied (other_writer_of).
  Result<void> wait_for_copy(const std::vector<CheckpointFile>& files, const std::string& target);
  /// Ends this actor.
  void leave() { context_.exit("its node has the checkpoints"); }

  static constexpr std::string_view actor_type = "CheckpointCopier";
  using Methods = troupe::Methods<&CheckpointCopier::copy, &CheckpointCopier::link,
                                  &CheckpointCopier::mark, &CheckpointCopier::marks_in,
                                  &CheckpointCopier::wait_for_copy, &CheckpointCopier::leave>;

 private:
  ActorContext& context_;
  std::optional<FolderMark> mark_;
};

void add_staging_actors(ActorTypes& types);

}  // namespace troupe
