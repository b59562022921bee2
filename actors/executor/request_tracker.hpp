#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/executor/answer.hpp"
#include "actors/telemetry/distribution_sketch.hpp"

namespace troupe {

/// The answers under way: brings each update to its answer. A plain class: it says what is to be
/// started and aborted, and its owner does it and tells it the time.
class RequestTracker {
 public:
  using Clock = std::chrono::steady_clock;

  /// `tokenizer` as make_answer's.
  explicit RequestTracker(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  /// Begins an answer on a replica; returns what to add to its scheduler.
  SequenceGroupSpec begin(std::size_t replica, PreparedRequest request, Clock::time_point now);

  /// What is to be done in the scheduler of `replica`, and the answer if it is there.
  struct Outcome {
    bool known = false;  ///< false: the request ended while the step ran
    std::size_t replica = 0;
    std::uint64_t request = 0;
    std::optional<std::int32_t> aborted = {};           ///< a sequence to be aborted
    std::vector<std::vector<std::int32_t>> beams = {};  ///< to be given to advance()
    std::optional<Completion> completion = {};          ///< done: what still runs is to be aborted
  };
  Outcome take(SequenceUpdate update, Clock::time_point now);

  /// Ends the answer to `request` with an error.
  Outcome fail(std::uint64_t request, std::string code, std::string message);

  /// Forgets the answers to `requests`, of which nothing ever ran.
  void drop(std::span<const std::uint64_t> requests);

  std::size_t size() const { return answers_.size(); }

  /// The times between the tokens of a sequence, of all sequences so far. Tokens that come together
  /// share the time since those before them.
  const DistributionSketch& inter_token_us() const { return inter_token_us_; }

 private:
  struct Entry {
    std::size_t replica = 0;
    std::unique_ptr<Answer> answer;
    Clock::time_point since;
    std::optional<Clock::time_point> first_token;
    Clock::time_point last_token;
    /// When the last token of each running sequence came, by its number.
    std::unordered_map<std::int32_t, Clock::time_point> last_token_of;
  };

  void note_tokens(Entry& entry, std::int32_t sequence, std::size_t tokens, Clock::time_point now);

  const Tokenizer* tokenizer_;
  DistributionSketch inter_token_us_;
  std::unordered_map<std::uint64_t, Entry> answers_;  ///< by request
};

}  // namespace troupe
