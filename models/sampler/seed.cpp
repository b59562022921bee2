#include "models/sampler/seed.hpp"

namespace troupe {

std::uint64_t seed_for(std::uint64_t job_seed, std::string_view custom_id) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto take = [&hash](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (int shift = 0; shift < 64; shift += 8) take((job_seed >> shift) & 0xff);
  for (const char c : custom_id) take(static_cast<unsigned char>(c));

  // S. Vigna's SplitMix64 finaliser.
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace troupe
