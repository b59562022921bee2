#include <algorithm>
#include <limits>

#include "runtime/object/store_impl.hpp"

namespace troupe {

// What people see.

std::string_view to_string(ObjectInfo::Place place) {
  using Place = ObjectInfo::Place;
  switch (place) {
    case Place::pending:
      return "pending";
    case Place::inside:
      return "inside";
    case Place::memory:
      return "memory";
    case Place::spilled:
      return "spilled";
    case Place::elsewhere:
      return "elsewhere";
    case Place::failed:
      return "failed";
    case Place::lost:
      return "lost";
  }
  return "";
}

StoreImpl::Metrics StoreImpl::make_metrics(MetricsRegistry& registry) {
  constexpr const char* bytes = "troupe_object_bytes";
  constexpr const char* bytes_help = "Bytes of objects and copies of them.";
  return {
      .objects = registry.gauge("troupe_objects", "Objects that there are."),
      .bytes_in_memory = registry.gauge(bytes, bytes_help, {{"where", "memory"}}),
      .bytes_spilled = registry.gauge(bytes, bytes_help, {{"where", "spilled"}}),
      .pulls = registry.counter("troupe_object_pulls_total", "Objects fetched from other hosts."),
      .pulled_bytes =
          registry.counter("troupe_object_pulled_bytes_total", "Bytes fetched from other hosts."),
      .spills = registry.counter("troupe_object_spills_total", "Objects written to files."),
      .restores = registry.counter("troupe_object_restores_total", "Objects read back from files."),
      .lost = registry.counter("troupe_objects_lost_total", "Gets that found their object lost."),
  };
}

ObjectCounts StoreImpl::counts() const {
  const Lock lock(mutex_);
  ObjectCounts counts = counts_;
  counts.owned = owned_.size();
  counts.held = held_.size();
  counts.held_bytes = held_.bytes_in_memory();
  counts.spilled_bytes = held_.bytes_spilled();
  counts.pinned_bytes = held_.bytes_pinned();
  counts.shares = shares_.size();
  counts.waits = waits_.size();
  counts.holds = holds_.size();
  return counts;
}

ObjectPage StoreImpl::list(const ObjectId& after, std::size_t limit) const {
  ObjectPage page;
  const Lock lock(mutex_);
  page.all_objects = owned_.size();
  if (after.owner > self_) return page;
  const Number above = after.owner == self_ ? after.number : 0;
  std::vector<Number> numbers;
  for (const auto& [number, owned] : owned_) {
    if (number > above) numbers.push_back(number);
  }
  const std::size_t count = std::min(limit, numbers.size());
  std::ranges::partial_sort(numbers, numbers.begin() + static_cast<std::ptrdiff_t>(count));
  numbers.resize(count);
  for (const Number number : numbers) page.objects.push_back(info_of(number));
  return page;
}

ObjectInfo StoreImpl::info_of(Number number) const {
  using Place = ObjectInfo::Place;
  const Owned& owned = owned_.at(number);
  ObjectInfo info{.id = {self_, number},
                  .bytes = owned.bytes,
                  .owner = options_.process_name,
                  .node = options_.node,
                  .place = owned.small ? Place::inside : Place::elsewhere,
                  .created_ms = owned.created_ms};
  info.copies = static_cast<std::uint32_t>(copies_.complete_copies(number).size());
  info.borrowers = static_cast<std::uint32_t>(references_.borrowers(number));
  if (const auto* held = held_.find(info.id)) {
    info.pins = held->pins;
    info.place = held->state == HeldObjects::State::spilled ? Place::spilled : Place::memory;
  }
  if (owned.error) info.place = Place::failed;
  if (owned.state == Owned::State::pending) info.place = Place::pending;
  if (owned.state == Owned::State::lost) info.place = Place::lost;
  return info;
}

}  // namespace troupe
