#include "launcher/quantize/calibration.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "launcher/batch/input/byte_source.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_bytes = std::size_t{1} << 28;

/// The beginning of a file, at most max_bytes of whole lines.
Result<std::string> read_text(const std::string& path) {
  TROUPE_TRY(ByteSource source, ByteSource::open(path, "text"));
  std::string text;
  std::array<char, 1 << 16> piece{};
  while (text.size() < max_bytes) {
    TROUPE_TRY(const auto count, source.read(piece, std::chrono::seconds(1)));
    if (!count) continue;
    if (*count == 0) return text;
    text.append(piece.data(), *count);
  }
  text.resize(std::min(text.size(), text.rfind('\n')));
  return text;
}

}  // namespace

Result<CalibrationText> read_calibration(const QuantizeOptions& options,
                                         const ModelConfig& config) {
  CalibrationText text{.tokens = {}, .length = options.calibrate_length};
  if (options.calibrate.empty()) return text;
  if (text.length > config.max_position_embeddings) {
    return fail(ErrorCode::invalid_argument,
                "--calibrate-length {} is more than the {} positions of {}: give a smaller one",
                text.length, config.max_position_embeddings, options.model);
  }
  TROUPE_TRY(const std::string characters, read_text(options.calibrate));
  TROUPE_TRY(const Tokenizer tokenizer, Tokenizer::load(options.model));
  auto encoded = tokenizer.encode(characters, false);
  if (!encoded.ok()) {
    return fail(encoded.error().code, "{}: {}", options.calibrate, encoded.error().message);
  }
  const std::int64_t there = std::ssize(*encoded) / text.length;
  if (there == 0) {
    return fail(ErrorCode::invalid_argument,
                "{} has {} tokens, less than a window of {}: give a longer text or a smaller "
                "--calibrate-length",
                options.calibrate, encoded->size(), text.length);
  }
  const std::int64_t windows = std::min(there, options.calibrate_windows);
  for (std::int64_t i = 0; i < windows; ++i) {
    const auto first = encoded->begin() + i * there / windows * text.length;
    text.tokens.insert(text.tokens.end(), first, first + text.length);
  }
  return text;
}

}  // namespace troupe
