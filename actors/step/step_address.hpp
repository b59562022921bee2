#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// Where the executor reaches workers: the one that takes a replica's plans and the one that
/// answers them. Empty: not this worker. If `results` is empty on all, the one that takes plans
/// answers.
struct StepAddresses {
  std::string plans;
  std::string results;

  template <class Archive>
  void fields(Archive& archive) {
    archive(plans, results);
  }
};

enum class StepDirection : std::uint8_t { plans, results };

/// The prefix of the names of an epoch's channels and shared memory regions.
std::string epoch_name(std::uint32_t epoch);
/// The purpose from which both ends derive the keys of one of a replica's step channels.
std::string step_channel_purpose(std::uint32_t epoch, std::int32_t replica,
                                 StepDirection direction);

}  // namespace troupe
