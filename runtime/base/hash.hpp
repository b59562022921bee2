#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// The two halves of a 128-bit hash, the high one first.
using Hash128 = std::pair<std::uint64_t, std::uint64_t>;

/// XXH3-128 of `text` (https://xxhash.com), the same on every machine and in every version: answer
/// ids, derived seeds and fingerprints depend on it. Not cryptographic. to_hex of it
/// equals the output of `xxhsum -H128`.
Hash128 hash_128(std::string_view text, std::uint64_t seed = 0);

/// "2bfdd6a899c1609090d50a723bb7008a".
std::string to_hex(const Hash128& hash);

/// hash_128 of text that comes in pieces. Not synchronised.
class Hasher128 {
 public:
  Hasher128();
  void add(std::string_view piece);
  /// The hash of all pieces so far.
  Hash128 hash() const;

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

}  // namespace troupe
