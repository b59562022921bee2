#include "runtime/base/hash.hpp"

#include <new>

#include <xxhash.h>

namespace troupe {
namespace {

Hash128 halves(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

}  // namespace

Hash128 hash_128(std::string_view text, std::uint64_t seed) {
  return halves(XXH3_128bits_withSeed(text.data(), text.size(), seed));
}

Hasher128::Hasher128() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Hasher128::add(std::string_view piece) {
  XXH3_128bits_update(state_.get(), piece.data(), piece.size());
}

Hash128 Hasher128::hash() const { return halves(XXH3_128bits_digest(state_.get())); }

void Hasher128::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

}  // namespace troupe
