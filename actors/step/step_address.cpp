#include "actors/step/step_address.hpp"

#include <fmt/format.h>

namespace troupe {

std::string epoch_name(std::uint32_t epoch) { return fmt::format("epoch {}", epoch); }

std::string worker_name(int rank) { return fmt::format("worker-{}", rank); }

ChannelScope step_channel_scope(std::uint32_t epoch, const std::string& executor, std::int32_t rank,
                                StepDirection direction) {
  return {fmt::format("step plane/{}/rank {}/{}", epoch_name(epoch), rank,
                      direction == StepDirection::plans ? "plans" : "results"),
          {executor, worker_name(rank)}};
}

}  // namespace troupe
