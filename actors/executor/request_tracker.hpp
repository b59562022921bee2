#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/api/request_progress.hpp"
#include "actors/executor/answer.hpp"
#include "actors/telemetry/distribution_sketch.hpp"

namespace troupe {

/// The answers being generated: passes each update to its answer. A plain class: it returns what to
/// start and abort, and its owner does so and passes it the time.
class RequestTracker {
 public:
  using Clock = std::chrono::steady_clock;

  /// `tokenizer`: see make_answer. `keeps_progress`: for take_progress().
  explicit RequestTracker(const Tokenizer* tokenizer, bool keeps_progress = false)
      : tokenizer_(tokenizer), keeps_progress_(keeps_progress) {}

  /// Begins an answer on a replica, or goes on with one of which another tracker has given this
  /// progress; returns what to add to the replica's scheduler.
  SequenceGroupSpec begin(std::size_t replica, PreparedRequest request, Clock::time_point now,
                          std::vector<SequenceUpdate> progress = {});

  /// The actions for the scheduler of `replica`, and the answer if it is complete.
  struct Outcome {
    bool known = false;  ///< false: the request ended while the step ran
    std::size_t replica = 0;
    std::uint64_t request = 0;
    std::optional<std::int32_t> aborted = {};           ///< a sequence to abort
    std::vector<std::vector<std::int32_t>> beams = {};  ///< to pass to advance()
    std::optional<Completion> completion = {};          ///< the answer; abort what still runs
  };
  Outcome take(SequenceUpdate update, Clock::time_point now);

  /// Ends the answer to `request` with an error.
  Outcome fail(std::uint64_t request, std::string code, std::string message);

  /// Returns what unfinished requests have generated since the last call, each one's together and
  /// in order.
  std::vector<SequenceUpdate> take_progress();

  /// Forgets the answers to `requests`. Returns the number of tokens that they had.
  std::uint64_t drop(std::span<const std::uint64_t> requests);

  std::size_t size() const { return answers_.size(); }

  /// Inter-token times of all sequences so far. Tokens that arrive together share the time since
  /// the ones before them.
  const DistributionSketch& inter_token_us() const { return inter_token_us_; }

 private:
  struct Entry {
    std::size_t replica = 0;
    std::unique_ptr<Answer> answer;
    std::uint64_t tokens = 0;  ///< of all its sequences
    Clock::time_point since;
    std::optional<Clock::time_point> first_token;
    Clock::time_point last_token;
    /// When each running sequence's last token came, by sequence number.
    std::unordered_map<std::int32_t, Clock::time_point> last_token_of;
    RequestProgress progress;  ///< since the last take_progress()
  };

  void note_tokens(Entry& entry, std::int32_t sequence, std::size_t tokens, Clock::time_point now);

  const Tokenizer* tokenizer_;
  bool keeps_progress_;
  DistributionSketch inter_token_us_;
  std::unordered_map<std::uint64_t, Entry> answers_;  ///< by request
};

}  // namespace troupe
