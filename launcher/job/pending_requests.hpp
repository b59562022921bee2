#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "actors/api/request.hpp"
#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// The requests in the engine that are not answered, bounded in number and in bytes, with the
/// headers that their answers need. One thread at a time.
class PendingRequests {
 public:
  /// Takes at most `most` requests.
  explicit PendingRequests(std::size_t most) : most_(most) {}

  bool has_room() const {
    return pending_.size() < most_ && bytes_ < max_bytes &&
           (pending_.empty() || kept_share_ < max_kept_share);
  }
  /// Takes at most so many from now on; those that are more stay.
  void set_most(std::size_t most) { most_ = most; }
  /// Takes note of EngineReport::kept_share: no more requests while too much is kept of these.
  void note_kept(double share) { kept_share_ = share; }
  bool empty() const { return pending_.empty(); }
  std::size_t size() const { return pending_.size(); }

  /// Assigns the request an id (Request::id) and keeps its header. Returns the bytes that the
  /// engine holds for it.
  std::size_t add(BatchRequest& request);
  /// Removes and returns the header of an answered request; nullopt if it is not pending.
  std::optional<RequestHeader> take(std::uint64_t id);

 private:
  /// Limit on the bytes of unanswered requests (plus one request).
  static constexpr std::size_t max_bytes = std::size_t{64} << 20;
  static constexpr double max_kept_share = 0.5;

  struct Pending {
    RequestHeader header;
    std::size_t bytes = 0;
  };
  std::size_t most_;
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::size_t bytes_ = 0;
  double kept_share_ = 0;
  std::uint64_t next_id_ = 1;
};

}  // namespace troupe
