#include "runtime/base/refusal_log.hpp"

#include <fmt/format.h>

namespace troupe {

void RefusalLog::note(std::string_view why, std::size_t count) {
  if (count == 0) return;
  const auto found = counts_.find(why);
  if (found != counts_.end()) {
    found->second += count;
  } else {
    counts_.emplace(why, count);
  }
}

std::string RefusalLog::take_line(Clock::time_point now) {
  if (counts_.empty() || now < next_line_) return "";
  next_line_ = now + std::chrono::seconds(10);
  std::size_t total = 0;
  std::string reasons;
  for (const auto& [why, count] : counts_) {
    total += count;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", count, why);
  }
  counts_.clear();
  return fmt::format("{}: refused {} connection{} ({})", listener_, total, total == 1 ? "" : "s",
                     reasons);
}

RefusalLog::Clock::time_point RefusalLog::due() const {
  return counts_.empty() ? Clock::time_point::max() : next_line_;
}

}  // namespace troupe
