#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/api/request.hpp"
#include "actors/scheduler/sequence_update.hpp"

namespace troupe {

/// Updates of the sequences of an unfinished request, as far as they have generated tokens. A new
/// answer to the same request that takes them in this order is where the old one was. The updates
/// of a sequence are merged as far as they are of generated tokens. A plain class; one thread at a
/// time.
class RequestProgress {
 public:
  /// Updates come in the order in which the answer takes them.
  void add(SequenceUpdate update);

  const std::vector<SequenceUpdate>& updates() const { return updates_; }
  /// Returns the updates and is empty again.
  std::vector<SequenceUpdate> take();
  /// Approximate memory.
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<SequenceUpdate> updates_;
  std::unordered_map<std::int32_t, std::size_t> last_of_;  ///< a sequence's last one in updates_
  std::size_t bytes_ = 0;
};

/// A request for an executor, and what another one before it has generated of the answer.
struct SubmittedRequest {
  Request request;
  std::vector<SequenceUpdate> progress;  ///< see RequestProgress; empty: it has not begun

  template <class Archive>
  void fields(Archive& archive) {
    archive(request, progress);
  }
};

}  // namespace troupe
