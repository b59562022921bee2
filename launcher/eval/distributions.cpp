#include "launcher/eval/distributions.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

namespace troupe {
namespace {

/// An alternative in the file.
struct Alternative {
  std::int32_t id = 0;
  float logprob = 0;
};

}  // namespace

PositionDifference compare_position(const TokenLogprobs& reference, const TokenLogprobs& found) {
  PositionDifference difference;
  if (reference.top_ids.empty() || found.top_ids.empty()) return difference;
  difference.same_top = reference.top_ids.front() == found.top_ids.front();
  std::unordered_map<std::int32_t, double> known;
  known.reserve(reference.top_ids.size());
  for (std::size_t i = 0; i < reference.top_ids.size(); ++i) {
    known.emplace(reference.top_ids[i], reference.top_logprobs[i]);
  }
  double rest = 1, reference_rest = 1;
  for (std::size_t i = 0; i < found.top_ids.size(); ++i) {
    const auto same = known.find(found.top_ids[i]);
    if (same == known.end()) continue;
    const double logprob = found.top_logprobs[i], probability = std::exp(logprob);
    difference.kl += probability * (logprob - same->second);
    rest -= probability;
    reference_rest -= std::exp(same->second);
  }
  // Below, what is left is rounding.
  constexpr double least = 1e-7;
  if (rest > least) {
    difference.kl += rest * std::log(rest / std::max<double>(reference_rest, least));
  }
  difference.kl = std::max(difference.kl, 0.0);
  return difference;
}

Result<DistributionFile> DistributionFile::create(const std::filesystem::path& path,
                                                  std::int64_t top) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary | std::ios::trunc);
  if (!file) return fail(ErrorCode::io, "cannot write {}", path.string());
  return DistributionFile(path, std::move(file), static_cast<std::size_t>(top));
}

std::streamoff DistributionFile::place_of(std::size_t position) const {
  return static_cast<std::streamoff>(position * top_ * sizeof(Alternative));
}

Result<void> DistributionFile::put(std::size_t first, std::span<const TokenLogprobs> positions) {
  std::vector<Alternative> record;
  record.reserve(positions.size() * top_);
  for (const TokenLogprobs& position : positions) {
    if (position.top_ids.size() != top_ || position.top_logprobs.size() != top_) {
      return fail(ErrorCode::invalid_argument, "{} alternatives of a token, expected {}",
                  position.top_ids.size(), top_);
    }
    for (std::size_t i = 0; i < top_; ++i) {
      record.push_back({position.top_ids[i], position.top_logprobs[i]});
    }
  }
  file_.seekp(place_of(first));
  file_.write(reinterpret_cast<const char*>(record.data()),
              static_cast<std::streamsize>(record.size() * sizeof(Alternative)));
  file_.flush();
  if (file_) return {};
  return fail(ErrorCode::io,
              "cannot write {}: is the disk full? --top-tokens with a smaller number needs less",
              path_.string());
}

Result<std::vector<TokenLogprobs>> DistributionFile::get(std::size_t first, std::size_t count) {
  std::vector<Alternative> record(count * top_);
  file_.seekg(place_of(first));
  file_.read(reinterpret_cast<char*>(record.data()),
             static_cast<std::streamsize>(record.size() * sizeof(Alternative)));
  if (!file_) return fail(ErrorCode::io, "cannot read {}", path_.string());
  std::vector<TokenLogprobs> positions(count);
  for (std::size_t i = 0; i < record.size(); ++i) {
    positions[i / top_].top_ids.push_back(record[i].id);
    positions[i / top_].top_logprobs.push_back(record[i].logprob);
  }
  return positions;
}

}  // namespace troupe
