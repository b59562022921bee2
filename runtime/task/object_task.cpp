#include "runtime/task/object_task.hpp"

#include "runtime/base/log.hpp"
#include "runtime/object/object_store.hpp"

namespace troupe::task_detail {

Bytes give_object(std::span<const std::byte> bytes, const ResultTarget& target,
                  const std::weak_ptr<CallHub>& hub) {
  const auto calls = hub.lock();
  const auto store = calls ? calls->objects() : nullptr;
  const bool is_kept = store && bytes.size() > max_small_bytes && !target.wants_value &&
                       target.object.owner_endpoint != store->endpoint();
  if (is_kept) {
    const auto held = store->hold_result(target.object, bytes);
    if (held.ok()) return encode(ObjectAnswer{true, {}});
    log::warning("the result of a task, of {} bytes, is sent to {} instead of being kept here: {}",
                 bytes.size(), target.object.owner_name, held.error().message);
  }
  Encoder encoder;
  encoder.reserve(bytes.size() + 16);
  encoder(false, std::uint64_t{bytes.size()});  // an ObjectAnswer, without a copy in between
  encoder.put_raw(bytes.data(), bytes.size());
  return encoder.take();
}

}  // namespace troupe::task_detail
