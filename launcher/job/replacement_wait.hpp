#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "launcher/config/cluster_config.hpp"

namespace troupe {

/// What a person is told while a running job waits for nodes in place of lost ones, or goes on
/// without step domains that have none. A plain class; takes the time as an argument.
class ReplacementWait {
 public:
  using Clock = std::chrono::steady_clock;

  /// `config` outlives the object. `join_command`: what is to be run on a node that joins; empty
  /// unless nodes do.
  explicit ReplacementWait(const Config& config) : config_(config) {}
  void set_join_command(std::string command) { join_command_ = std::move(command); }

  /// Takes a report in, and returns the messages that it is worth.
  std::vector<std::string> take(const EngineWait& wait, Clock::time_point now);
  std::vector<std::string> take(const EngineDomainChange& change);
  /// The waits that go on, in a few words: "waiting 12 s of at most 5:00 for a node in place of
  /// 'h2'", "1 of 2 step domains serve". Empty if there is none.
  std::string notice(Clock::time_point now) const;

 private:
  /// "waiting at most 5:00 (restart.wait_seconds) for WHOM; ...": and what can be done.
  std::string at_most(const std::string& whom) const;
  /// "1 of 2 step domains serve".
  std::string those_that_serve() const;
  std::string remedy() const;       ///< what can be done for lost nodes
  std::string way_to_join() const;  ///< how further nodes come

  struct Wait {
    std::vector<std::string> lost;
    Clock::time_point since;
  };
  const Config& config_;
  std::string join_command_;
  std::map<std::int32_t, Wait> waits_;  ///< by step domain
  std::int32_t serving_ = 0;            ///< step domains, of `domains_`, as told last
  std::int32_t domains_ = 0;
};

}  // namespace troupe
