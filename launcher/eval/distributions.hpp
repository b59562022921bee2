#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "models/sampler/sampling_params.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How a position's distribution differs from a reference's.
struct PositionDifference {
  double kl = 0;  ///< of it from the reference, KL(it || reference), in nats
  bool same_top = false;
};

/// The difference of `found` from `reference`, alternatives of one position, best first. Tokens
/// that both list are compared one by one, all others as one: with the whole vocabulary in both
/// lists the divergence is exact, else a lower bound (the data-processing inequality; Cover &
/// Thomas 2006, section 2.8).
PositionDifference compare_position(const TokenLogprobs& reference, const TokenLogprobs& found);

/// Keeps the distributions of many positions in a file, in the order of their numbers. One thread
/// at a time.
class DistributionFile {
 public:
  /// `top`: alternatives of a position. The file is new. Errors: io.
  static Result<DistributionFile> create(const std::filesystem::path& path, std::int64_t top);

  /// Errors: io, if the disk is full among others; invalid_argument for other alternatives than
  /// `top`.
  Result<void> put(std::size_t first, std::span<const TokenLogprobs> positions);
  Result<std::vector<TokenLogprobs>> get(std::size_t first, std::size_t count);

 private:
  DistributionFile(std::filesystem::path path, std::fstream file, std::size_t top)
      : path_(std::move(path)), file_(std::move(file)), top_(top) {}
  std::streamoff place_of(std::size_t position) const;

  std::filesystem::path path_;
  std::fstream file_;
  std::size_t top_;
};

}  // namespace troupe
