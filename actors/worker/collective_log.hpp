#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The latest call of a rank to the others of a group, and how many there were. Ranks of a group
/// make the same calls, so the one that has made fewer is the one that the others wait for.
struct CollectiveState {
  std::string group;                                     ///< "tensor"
  std::vector<std::int32_t> ranks;                       ///< of the mesh
  std::uint64_t calls = 0;                               ///< begun, but for messages
  std::vector<std::uint64_t> sends = {}, receives = {};  ///< begun, by place in `ranks`
  bool is_inside = false;                                ///< the latest one has not returned
  std::string op = {};         ///< "all_reduce"; empty before the first one
  std::uint64_t bytes = 0;     ///< that it takes from this rank, or gives to it
  std::int32_t peer = -1;      ///< of a message: the place in `ranks`
  std::uint64_t since_us = 0;  ///< since it began, or has returned

  template <class Archive>
  void fields(Archive& archive) {
    archive(group, ranks, calls, sends, receives, is_inside, op, bytes, peer, since_us);
  }
};

/// The step that a rank is at, and its latest calls to others.
struct RankState {
  std::int32_t rank = 0;  ///< in the mesh
  std::uint32_t incarnation = 0;
  std::uint64_t step = 0;   ///< begun or finished last
  bool is_in_step = false;  ///< it has steps to finish
  std::vector<CollectiveState> groups = {};

  template <class Archive>
  void fields(Archive& archive) {
    archive(rank, incarnation, step, is_in_step, groups);
  }
};

/// Notes the calls of a rank on the communicators of one group. Callable from any thread.
class CollectiveLog {
 public:
  CollectiveLog(std::string group, std::vector<int> ranks);

  /// A call begins. `op` is a literal; `peer`: of a message, the place of the other rank in the
  /// group.
  void begin(std::string_view op, std::uint64_t bytes);
  void begin_send(std::uint64_t bytes, int peer);
  void begin_receive(std::uint64_t bytes, int peer);
  void end();
  /// The group has formed anew, and counts from 0.
  void restart();

  CollectiveState state() const;

 private:
  using Clock = std::chrono::steady_clock;
  void note(std::string_view op, std::uint64_t bytes, int peer);

  mutable std::mutex mutex_;
  CollectiveState state_;
  std::string_view op_;
  Clock::time_point changed_ = Clock::now();
};

}  // namespace troupe
