#include "launcher/bench/faults/domain_book.hpp"

#include <fmt/format.h>

namespace troupe {

void DomainBook::take(const EngineDomainChange& change, double at_seconds) {
  changes_.push_back({change, at_seconds});
  const bool is_back = change.kind == EngineDomainChange::Kind::back;
  const bool was_away = away_.contains(change.domain);
  if (is_back != was_away) {
    contradictions_.push_back(fmt::format("step domain {} is {}", change.domain,
                                          is_back ? "back, but was not dropped" : "dropped twice"));
  }
  if (is_back) {
    away_.erase(change.domain);
  } else {
    away_.insert(change.domain);
  }
  const std::int32_t serving = change.all - static_cast<std::int32_t>(away_.size());
  if (change.serving != serving) {
    contradictions_.push_back(fmt::format(
        "{} of {} step domains are said to serve after step "
        "domain {} is {}, and not {}",
        change.serving, change.all, change.domain, is_back ? "back" : "dropped", serving));
  }
}

std::vector<std::int32_t> DomainBook::away() const { return {away_.begin(), away_.end()}; }

}  // namespace troupe
