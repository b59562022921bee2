#include "actors/worker/startup/own_device.hpp"

namespace troupe {

Result<int> own_device(std::span<const int> placed, int usable, std::string_view place) {
  if (placed.empty()) return fail(ErrorCode::not_found, "{}: it was placed without a GPU", place);
  const int device = placed.front();
  if (device >= 0 && device < usable) return device;
  return fail(
      ErrorCode::not_found,
      "{}: it was placed on GPU {}, but this build runs on {} of those here; each rank needs "
      "one of its own",
      place, device, usable);
}

}  // namespace troupe
