#include "actors/step/step_address.hpp"

#include <fmt/format.h>

namespace troupe {

std::string epoch_name(std::uint32_t epoch) { return fmt::format("epoch {}", epoch); }

std::string step_channel_purpose(std::uint32_t epoch, std::int32_t replica,
                                 StepDirection direction) {
  return fmt::format("step plane/{}/replica {}/{}", epoch_name(epoch), replica,
                     direction == StepDirection::plans ? "plans" : "results");
}

}  // namespace troupe
