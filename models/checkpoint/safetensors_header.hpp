#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <nlohmann/json.hpp>

namespace troupe {

/// The first bytes of a safetensors file: the length of the header, then the header, whose spaces
/// at the end align the data.
inline std::string safetensors_header(const nlohmann::ordered_json& tensors) {
  constexpr std::size_t alignment = 8;
  std::string text = tensors.dump();
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace troupe
