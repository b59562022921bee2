#include "runtime/base/hash.hpp"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // so that programs on the runtime need not link it
#include <xxhash.h>

namespace troupe {
namespace {

Hash128 halves(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

}  // namespace

Hash128 hash_128(std::string_view text, std::uint64_t seed) {
  return halves(XXH3_128bits_withSeed(text.data(), text.size(), seed));
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.first, hash.second);
}

struct Hasher128::State {
  XXH3_state_t of_library;  // aligned by its type
};

Hasher128::Hasher128() : state_(new State) { XXH3_128bits_reset(&state_->of_library); }

void Hasher128::add(std::string_view piece) {
  XXH3_128bits_update(&state_->of_library, piece.data(), piece.size());
}

Hash128 Hasher128::hash() const { return halves(XXH3_128bits_digest(&state_->of_library)); }

void Hasher128::Free::operator()(State* state) const { delete state; }

}  // namespace troupe
