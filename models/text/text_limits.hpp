#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

// Bounds on what the components of a tokenizer.json may ask for, so that a hostile file takes
// neither the stack nor all memory. Published tokenizers stay far below them.

namespace troupe::text {

/// Steps of a normalizer, pre-tokenizer or decoder, those of its Sequences counted together.
inline constexpr std::size_t most_steps = 64;

/// Bytes that a component puts in place of, or before, a text. SentencePiece's sign has three.
inline constexpr std::size_t longest_inserted_text = 64;

/// The bytes that `bytes` of text may have after all steps. NFKD gives up to 11 times as many,
/// SentencePiece's sign 3 for a space.
inline constexpr std::size_t largest_grown_text(std::size_t bytes) { return 64 * bytes + 4096; }

/// corrupt_data if `steps` are more than most_steps.
inline Result<> check_steps(std::size_t steps, std::string_view component) {
  if (steps <= most_steps) return {};
  return fail(ErrorCode::corrupt_data, "{} with more than {} steps", component, most_steps);
}

/// The text under `key`: corrupt_data if it is longer than longest_inserted_text; may throw
/// nlohmann::json::exception.
inline Result<std::string> read_short_text(const nlohmann::json& object, const char* key) {
  auto text = object.at(key).get<std::string>();
  if (text.size() <= longest_inserted_text) return text;
  return fail(ErrorCode::corrupt_data, "{} of {} bytes, more than {}", key, text.size(),
              longest_inserted_text);
}

}  // namespace troupe::text
