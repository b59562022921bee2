#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "actors/api/request.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {

/// An answer that is not what it was in the undisturbed run.
struct AnswerDifference {
  std::uint64_t round = 0;  ///< from 1 on
  std::size_t request = 0;  ///< from 1 on
  std::string what;         ///< for a person: "token 17 of 64 is another one"
};

/// Compares the answers to the same requests, asked round after round: those of round 0, the
/// undisturbed one, are kept (token ids, and a hash of all else), and each later answer must be
/// that one to the last bit, but for its times, and come once. A plain class; one thread at a time.
///
/// Requests have ids: number `index` of round `round` has round * requests + index + 1.
class AnswerBook {
 public:
  static constexpr std::size_t max_told = 20;

  explicit AnswerBook(std::size_t requests) : kept_(requests) {}

  /// The request of that id is asked.
  void asked(std::uint64_t id) { unanswered_.insert(id); }
  /// Takes an answer.
  void take(Completion completion);

  std::size_t unanswered() const { return unanswered_.size(); }
  std::uint64_t compared() const { return compared_; }    ///< answers of rounds after the first
  std::uint64_t different() const { return different_; }  ///< of these, and superfluous ones
  /// The first max_told differences.
  const std::vector<AnswerDifference>& differences() const { return differences_; }

 private:
  struct Kept {
    std::vector<std::vector<std::int32_t>> tokens;  ///< of each choice
    std::string error_code;
    Hash128 hash{};  ///< of the whole answer without its id and times
  };
  static Kept kept_of(Completion completion);
  /// Why `now` is not `before`; empty if it is.
  static std::string difference(const Kept& before, const Kept& now);
  void note(std::uint64_t id, std::string what);

  std::vector<Kept> kept_;  ///< by request
  std::unordered_set<std::uint64_t> unanswered_;
  std::uint64_t compared_ = 0, different_ = 0;
  std::vector<AnswerDifference> differences_;
};

}  // namespace troupe
