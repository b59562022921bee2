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

/// A sequence for the scheduler of one replica of the domain.
struct PlacedSequence {
  std::size_t replica = 0;
  SequenceSpec spec;
};

/// The name of a live sequence, for the scheduler of its replica.
struct PlacedName {
  std::size_t replica = 0;
  std::uint64_t name = 0;
};

/// All answers under way: names the sequences that they are made of, and brings each update to its
/// answer. A plain class: it says what is to be started and aborted, and its owner does it and
/// tells it the time.
class RequestTracker {
 public:
  using Clock = std::chrono::steady_clock;

  /// `tokenizer` as make_answer's.
  explicit RequestTracker(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  /// Begins an answer on a replica; returns the sequences to add there.
  std::vector<PlacedSequence> begin(std::size_t replica, PreparedRequest request,
                                    Clock::time_point now);

  struct Outcome {
    bool known = false;                    ///< false: the sequence was aborted while the step ran
    std::vector<PlacedName> aborted = {};  ///< to be ended in the scheduler, which may know already
    std::vector<PlacedSequence> started = {};   ///< to be added
    std::optional<Completion> completion = {};  ///< the answer is done
  };
  Outcome take(SequenceUpdate update, Clock::time_point now);

  /// Ends the answer that the sequence `name` is part of with an error.
  Outcome fail(std::uint64_t name, std::string code, std::string message);

  struct Drained {
    std::vector<std::uint64_t> dropped;   ///< requests none of whose sequences had begun
    std::vector<PlacedSequence> started;  ///< to be added again: they belong to answers that had
  };
  /// The scheduler has ended the sequences `names`, which waited: drops the answers of which
  /// nothing else runs or ever ran, and lets the others go on.
  Drained drain(std::span<const std::uint64_t> names);

  /// Whether the sequence `name` is one whose updates are waited for.
  bool expects(std::uint64_t name) const { return places_.contains(name); }

  std::size_t size() const { return answers_.size(); }

  /// The times between the tokens of a sequence, of all sequences so far. Tokens that come together
  /// share the time since those before them.
  const DistributionSketch& inter_token_us() const { return inter_token_us_; }

 private:
  struct Entry {
    std::size_t replica = 0;
    std::unique_ptr<Answer> answer;
    std::size_t places = 0;            ///< sequences it has asked for
    std::vector<std::uint64_t> names;  ///< of live sequences
    bool begun = false;                ///< some sequence was heard of
    Clock::time_point since;
    std::optional<Clock::time_point> first_token;
    Clock::time_point last_token;
  };
  struct Place {
    std::uint64_t request = 0;
    std::size_t place = 0;
    std::optional<Clock::time_point> last_token = {};
  };

  std::vector<PlacedSequence> name(std::uint64_t request, Entry& entry,
                                   std::vector<SequenceSpec> specs);
  PlacedSequence name_one(std::uint64_t request, Entry& entry, std::size_t place,
                          SequenceSpec spec);
  void forget(Entry& entry, std::uint64_t name);
  void note_tokens(Entry& entry, Place& place, std::size_t tokens, Clock::time_point now);

  const Tokenizer* tokenizer_;
  std::uint64_t next_name_ = 0;
  DistributionSketch inter_token_us_;
  std::unordered_map<std::uint64_t, Entry> answers_;  ///< by request
  std::unordered_map<std::uint64_t, Place> places_;   ///< of live sequences, by name
};

}  // namespace troupe
