#include "actors/step/step_address.hpp"

#include <fmt/format.h>

namespace troupe {

std::string epoch_name(std::uint32_t epoch) { return fmt::format("epoch {}", epoch); }

std::string step_channel_purpose(std::uint32_t epoch, std::int32_t rank, StepDirection direction) {
  return fmt::format("step plane/{}/rank {}/{}", epoch_name(epoch), rank,
                     direction == StepDirection::plans ? "plans" : "results");
}

}  // namespace troupe
