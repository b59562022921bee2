#include "models/text/byte_alphabet.hpp"

#include <array>

#include "models/text/unicode/utf8.hpp"

namespace troupe::text {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte)
    characters[byte] = stands_for_itself(byte) ? byte : next++;
  return characters;
}

constexpr std::array<char32_t, 256> characters = make_characters();
constexpr std::size_t alphabet_end = 0x100 + 68;

constexpr std::array<int, alphabet_end> make_bytes() {
  std::array<int, alphabet_end> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[characters[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}

constexpr std::array<int, alphabet_end> bytes = make_bytes();

}  // namespace

char32_t byte_to_character(unsigned char byte) { return characters[byte]; }

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const char32_t character = next_code_point(token, at);
    if (character >= alphabet_end || bytes[character] < 0) return std::nullopt;
    out.push_back(static_cast<char>(bytes[character]));
  }
  return out;
}

}  // namespace troupe::text
