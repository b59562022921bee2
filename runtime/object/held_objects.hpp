#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/object/object_id.hpp"
#include "runtime/object/segment_pool.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Tells the pins of one reader apart.
using PinNumber = std::uint64_t;

/// The large objects that one process holds, its own and copies of others', in segments or spilled
/// to files, with their pins: an object that somebody has mapped is neither spilled nor is its
/// segment used again. A pin has a number that its reader uses once, so giving one back twice, or
/// one that was never made, does nothing. Objects that nobody has pinned are in the order of their
/// last use. All operations cost O(1), the end of a process one for each object that it had pinned.
/// Not synchronised.
class HeldObjects {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { filling, ready, spilling, spilled, restoring };
  /// Called once the object is ready or it is known that it will not be.
  using Waiter = std::function<void(const Result<void>&)>;

  struct Held {
    State state = State::filling;
    std::uint64_t bytes = 0;
    std::shared_ptr<Segment> segment;  ///< none while it is spilled
    std::shared_ptr<UniqueFd> file;    ///< once it was spilled
    std::uint32_t pins = 0;
    bool is_dropped = false;      ///< to be freed once its last pin is gone
    bool is_read_on = false;      ///< a reader's pin was lost with its process: it may be mapped
    std::vector<Waiter> waiters;  ///< for `ready`
    Clock::time_point used_at{};
    std::list<ObjectId>::iterator place;  ///< in the order of use, if it is_idle
    bool is_idle = false;                 ///< ready, and nobody has pinned it
  };

  /// What is left of an object that is forgotten: its segment goes to the pool, unless it may still
  /// be mapped.
  struct Freed {
    std::shared_ptr<Segment> segment;
    bool may_be_mapped = false;
    std::shared_ptr<UniqueFd> file;
    std::vector<Waiter> waiters;  ///< get an error
  };

  /// A new object. `segment` may be filled later (State::filling), until set_ready.
  void add(const ObjectId& id, State state, std::uint64_t bytes, std::shared_ptr<Segment> segment);
  Held* find(const ObjectId& id);
  const Held* find(const ObjectId& id) const { return const_cast<HeldObjects*>(this)->find(id); }
  /// It can be read from its segment from now on. Returns those that have waited.
  std::vector<Waiter> set_ready(const ObjectId& id);
  /// For an object whose bytes are in memory.
  void pin(const ObjectId& id, StoreId reader, PinNumber pin);
  /// Returns what is to be freed, if this was the last pin of a dropped object.
  std::optional<Freed> unpin(StoreId reader, PinNumber pin);
  /// Its owner needs it no longer. Freed later if it is pinned or being spilled.
  std::optional<Freed> drop(const ObjectId& id);
  /// Forgets an object that could not be filled, whatever its state.
  std::optional<Freed> remove(const ObjectId& id);
  /// The process has ended: its pins are gone.
  std::vector<Freed> remove_reader(StoreId reader);
  /// The objects of an owner that has ended are dropped.
  std::vector<Freed> remove_owner(StoreId owner);

  /// Begins to spill the object that was not used for the longest time, if there is one that nobody
  /// has pinned; its state is `spilling` until end_spill.
  std::optional<ObjectId> begin_spill();
  /// It is in the file; returns what is to be freed. If it was pinned meanwhile it stays as it was.
  std::optional<Freed> end_spill(const ObjectId& id, std::shared_ptr<UniqueFd> file);
  /// A spilled object is being read back, until set_ready, or fail_restore, which returns those
  /// that have waited.
  void begin_restore(Held& held) { set_state(held, State::restoring); }
  std::vector<Waiter> fail_restore(Held& held) {
    set_state(held, State::spilled);
    return std::exchange(held.waiters, {});
  }
  /// All that wait for any object, which is not going to be ready.
  std::vector<Waiter> take_waiters();
  /// When the object that begin_spill would take was used; none if there is none.
  std::optional<Clock::time_point> oldest_use() const;

  std::size_t size() const { return held_.size(); }
  std::uint64_t bytes_in_memory() const { return bytes_in_memory_; }
  std::uint64_t bytes_spilled() const { return bytes_spilled_; }
  std::uint64_t bytes_pinned() const { return bytes_pinned_; }

 private:
  using All = std::unordered_map<ObjectId, Held>;
  void make_idle(const ObjectId& id, Held& held);
  void make_busy(Held& held);
  void set_state(Held& held, State state);
  Freed take(All::iterator found);
  /// One pin of it is gone.
  std::optional<Freed> release(All::iterator found);

  All held_;
  std::list<ObjectId> idle_;  ///< the least recently used first
  std::unordered_map<StoreId, std::unordered_map<PinNumber, ObjectId>> pinned_;
  std::unordered_map<StoreId, std::unordered_set<ObjectId>> of_owner_;
  std::uint64_t bytes_in_memory_ = 0, bytes_spilled_ = 0, bytes_pinned_ = 0;
};

}  // namespace troupe
