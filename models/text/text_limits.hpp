#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

// Limits on the components of a tokenizer.json, so that a hostile file exhausts neither the stack
// nor memory. Published tokenizers are far below them.

namespace troupe::text {

/// Steps of a normalizer, pre-tokenizer or decoder, including those of its Sequences.
inline constexpr std::size_t most_steps = 64;

/// Bytes that a component may insert for, or before, a text. SentencePiece's sign has three.
inline constexpr std::size_t longest_inserted_text = 64;

/// The most bytes that `bytes` of text may grow to over all steps. NFKD gives up to 11 times as
/// many, SentencePiece's sign 3 for a space.
inline constexpr std::size_t largest_grown_text(std::size_t bytes) { return 64 * bytes + 4096; }

/// Returns corrupt_data if `steps` exceeds most_steps.
inline Result<> check_steps(std::size_t steps, std::string_view component) {
  if (steps <= most_steps) return {};
  return fail(ErrorCode::corrupt_data, "{} with more than {} steps", component, most_steps);
}

/// Reads the text under `key`. corrupt_data if it is longer than longest_inserted_text; may throw
/// nlohmann::json::exception.
inline Result<std::string> read_short_text(const nlohmann::json& object, const char* key) {
  auto text = object.at(key).get<std::string>();
  if (text.size() <= longest_inserted_text) return text;
  return fail(ErrorCode::corrupt_data, "{} of {} bytes, more than {}", key, text.size(),
              longest_inserted_text);
}

}  // namespace troupe::text
