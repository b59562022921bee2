#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/security/plane_keys.hpp"

namespace troupe {

/// The channels of the step plane that a worker listens at; empty: none. A worker that answers and
/// takes plans answers over the channel of its plans.
struct StepAddresses {
  std::string plans;
  std::string results;

  template <class Archive>
  void fields(Archive& archive) {
    archive(plans, results);
  }
};

/// A worker that has begun to serve.
struct StartedWorker {
  StepAddresses addresses;
  std::uint32_t incarnation = 0;  ///< of the actor

  template <class Archive>
  void fields(Archive& archive) {
    archive(addresses, incarnation);
  }
};

/// A channel of the step plane as the executor reaches it: the worker that listens, and where.
struct StepAddress {
  std::int32_t rank = 0;
  std::string address;

  template <class Archive>
  void fields(Archive& archive) {
    archive(rank, address);
  }
};

/// The step channels of a replica: plans go to one worker of each node, results come from one.
struct ReplicaAddresses {
  std::vector<StepAddress> plans;  ///< at least one
  std::optional<StepAddress> results;
  std::int32_t answering = 0;  ///< which of `plans` brings the results, if `results` is empty

  template <class Archive>
  void fields(Archive& archive) {
    archive(plans, results, answering);
  }
};

/// The name of the actor that is the worker of this rank.
std::string worker_name(int rank);

enum class StepDirection : std::uint8_t { plans, results };

/// The prefix of the names of an epoch's channels and shared memory regions.
std::string epoch_name(std::uint32_t epoch);
/// The scope from which both ends derive the keys of the step channel at which worker `rank`
/// listens.
ChannelScope step_channel_scope(std::uint32_t epoch, const std::string& executor, std::int32_t rank,
                                StepDirection direction);

}  // namespace troupe
