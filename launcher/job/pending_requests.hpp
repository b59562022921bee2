#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "actors/engine/request.hpp"
#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// The requests that the engine was handed and has not answered, bounded in number and in bytes; it
/// keeps what their answers need to know of them. One thread at a time.
class PendingRequests {
 public:
  /// `most` requests at most.
  explicit PendingRequests(std::size_t most) : most_(most) {}

  bool has_room() const { return pending_.size() < most_ && bytes_ < max_bytes; }
  bool empty() const { return pending_.empty(); }
  std::size_t size() const { return pending_.size(); }

  /// Names the request (Request::id) and keeps its header. The bytes that the engine holds of it.
  std::size_t add(BatchRequest& request);
  /// The header of a request that is answered; nullopt for one that is not pending.
  std::optional<RequestHeader> take(std::uint64_t id);

 private:
  /// Bytes of requests that are not answered, at most (and one request more).
  static constexpr std::size_t max_bytes = std::size_t{64} << 20;

  struct Pending {
    RequestHeader header;
    std::size_t bytes = 0;
  };
  std::size_t most_;
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::size_t bytes_ = 0;
  std::uint64_t next_id_ = 1;
};

}  // namespace troupe
