#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

std::uint64_t load_little_endian(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return word;
}

std::uint64_t fold_multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

std::pair<std::uint64_t, std::uint64_t> hash_128(std::string_view text, std::uint64_t seed) {
  // Odd constants with balanced bits: the fractional parts of pi, e and the golden ratio.
  constexpr std::uint64_t pi = 0x243f6a8885a308d3ULL;
  constexpr std::uint64_t e = 0xb7e151628aed2a6bULL;
  constexpr std::uint64_t phi = 0x9e3779b97f4a7c15ULL;
  std::uint64_t first = mix(seed + phi) ^ pi;
  std::uint64_t second = mix(seed + pi) ^ e;
  for (std::size_t i = 0; i < text.size(); i += 8) {
    const std::uint64_t word = load_little_endian(text.substr(i, 8));
    first = fold_multiply(first ^ word, phi) + word;
    second = fold_multiply(second + word, e) ^ word;
  }
  return {mix(first ^ text.size()), mix(second + text.size() * phi)};
}

}  // namespace troupe
