#include "runtime/node/key_text.hpp"

#include <charconv>

namespace troupe {

bool read_key(std::string_view text, Key& key) {
  if (text.size() != 2 * key.size()) return false;
  for (std::size_t i = 0; i < key.size(); ++i) {
    std::uint8_t byte = 0;
    const char* digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2) return false;
    key[i] = std::byte{byte};
  }
  return true;
}

}  // namespace troupe
