#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/api/request.hpp"

namespace troupe {

/// Chooses a replica for each request: the one with the least work, in tokens, including this
/// request. A replica's work is its outstanding requests and this one, less the longest prefix of
/// this one's prompt that it was given before, which a prefix cache need not compute again. A pure
/// state machine; one thread at a time.
class Router {
 public:
  /// Prefixes are remembered in pieces of this many bytes of text, or a quarter as many ids.
  static constexpr std::size_t piece_bytes = 256;
  /// The most pieces remembered over all replicas; the least recently used ones are forgotten.
  static constexpr std::size_t max_pieces = std::size_t{1} << 16;

  explicit Router(int replicas);

  /// Returns the replica for `request` among those that are open, at least one; it counts as
  /// outstanding there from now on. Of equals the first.
  int choose(const Request& request);
  /// A replica that is closed gets no requests. Its prefix cache is empty when it opens again. All
  /// are open at first.
  void open(int replica);
  void close(int replica);
  bool has_open() const;
  /// The request is answered, or will not be. Unknown ones are ignored.
  void finished(std::uint64_t request);

  /// The approximate tokens of a replica's outstanding requests, prompts included.
  std::int64_t outstanding_tokens(int replica) const {
    return outstanding_tokens_[static_cast<std::size_t>(replica)];
  }
  /// At most max_pieces.
  std::size_t remembered_pieces() const { return pieces_.size(); }

 private:
  /// A piece of a prompt prefix, and the replicas that were given it.
  struct Piece {
    std::uint64_t hash = 0;      ///< of all bytes up to its end
    std::vector<bool> given_to;  ///< by replica
  };
  struct Outstanding {
    int replica = 0;
    std::int64_t tokens = 0;
  };

  std::vector<std::uint64_t> piece_hashes(const Request& request) const;
  std::vector<std::int64_t> known_pieces(const std::vector<std::uint64_t>& hashes) const;
  void remember(const std::vector<std::uint64_t>& hashes, int replica);

  std::vector<std::int64_t> outstanding_tokens_;  ///< by replica
  std::vector<bool> is_open_;                     ///< by replica
  std::unordered_map<std::uint64_t, Outstanding> outstanding_;
  std::list<Piece> pieces_;  ///< the most recently used first
  std::unordered_map<std::uint64_t, std::list<Piece>::iterator> piece_of_;
};

/// The approximate tokens of a request: those of its prompt (four bytes of text each) and those
/// that it may generate.
std::int64_t estimated_tokens(const Request& request);

}  // namespace troupe
