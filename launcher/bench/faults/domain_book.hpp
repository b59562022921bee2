#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "actors/api/engine_spec.hpp"

namespace troupe {

/// A step domain of an elastic job that was dropped, or is back.
struct DomainRecord {
  EngineDomainChange change;
  double at_seconds = 0;  ///< since the faults began
};

/// Follows the step domains of an elastic job, and checks what is told of them: one that is dropped
/// was there, one that is back was not, and the number of those that serve is right. A plain class;
/// one thread at a time.
class DomainBook {
 public:
  /// Takes a change; those of before the faults too.
  void take(const EngineDomainChange& change, double at_seconds);

  /// The domains that are dropped at the moment.
  std::vector<std::int32_t> away() const;
  const std::vector<DomainRecord>& changes() const { return changes_; }
  /// What was told and cannot be, for people; empty if all fits.
  const std::vector<std::string>& contradictions() const { return contradictions_; }

 private:
  std::set<std::int32_t> away_;
  std::vector<DomainRecord> changes_;
  std::vector<std::string> contradictions_;
};

}  // namespace troupe
