#include "launcher/quantize/calibration.hpp"

#include <algorithm>

#include "launcher/batch/input/read_text.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {
namespace {

/// The most bytes of a text that windows are cut from.
constexpr std::size_t max_bytes = std::size_t{1} << 28;

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
  TROUPE_TRY(FileText read, read_text(options.calibrate, "text", max_bytes));
  std::string& characters = read.text;
  if (!read.is_whole) characters.resize(std::min(characters.size(), characters.rfind('\n')));
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
