#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/state/state_client.hpp"

namespace troupe {

/// Reads one log of a cluster piece by piece, as it grows.
class LogReader {
 public:
  /// `client` outlives this object.
  LogReader(StateClient& client, std::string name) : client_(&client), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  /// The node whose processes all write there; empty: the log is its own.
  const std::string& shared_with() const { return shared_with_; }

  /// Goes to where the last `lines` lines begin.
  Result<void> go_to_last(std::uint64_t lines, std::chrono::milliseconds limit);
  /// Returns the next bytes, none if there are no more at the moment. A file that was cut, or whose
  /// place another one has taken, is read from its beginning; another file that many processes
  /// share, from its end. Errors: not_found for an actor that there is not; StateClient::get.
  Result<std::string> next(std::chrono::milliseconds limit);
  /// True if next() had returned, when it was called last, all that there was then.
  bool has_all() const { return at_ >= size_; }
  /// True if the last answer was about a file that there is.
  bool is_there() const { return is_there_; }
  /// Returns what has been written since, from the file itself: for this machine, after the driver
  /// has closed the link. Empty if it cannot be read.
  std::string rest() const;

 private:
  Result<LogPiece> piece_at(std::uint64_t offset, std::uint32_t bytes,
                            std::chrono::milliseconds limit);

  StateClient* client_;
  std::string name_;
  std::string path_, shared_with_;
  std::optional<std::uint64_t> inode_;  ///< of the file read last
  std::uint64_t at_ = 0;
  std::uint64_t size_ = 0;  ///< of the file, as answered last
  bool is_there_ = false;
};

}  // namespace troupe
