#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {

/// Counts the memory of all stores of a node, in shared memory: a line for each process, which is
/// cleared by whoever finds the node full once the process has ended. Callable from any thread.
class NodeLedger {
 public:
  /// The bytes of shared memory that it needs.
  static std::size_t bytes_needed();
  /// Takes a line. `limit`: for the node, if this is its first store. Errors: resource_exhausted if
  /// all lines are taken.
  static Result<std::unique_ptr<NodeLedger>> join(SharedMemory memory, std::uint64_t limit,
                                                  const std::string& name,
                                                  const std::string& endpoint);
  ~NodeLedger();

  std::uint64_t limit() const;
  std::uint64_t used() const;
  /// Counts bytes that come or go; false, and nothing is counted, if the node has no room for them.
  bool charge(std::int64_t bytes);
  /// Forgets processes that have ended; true if that has freed something.
  bool clear_ended();
  /// Tells the others what this process could spill, and what it cannot.
  void tell(std::optional<std::chrono::steady_clock::time_point> oldest_idle, std::uint64_t pinned);
  struct Victim {
    std::string endpoint;
    std::chrono::steady_clock::time_point used_at;
  };
  /// The other process with the least recently used object that can be spilled.
  std::optional<Victim> victim() const;
  /// "A holds 5 bytes (5 mapped), B ..." of the largest.
  std::string describe() const;

 private:
  struct Page;
  explicit NodeLedger(SharedMemory memory) : memory_(std::move(memory)) {}
  Page& page() const;
  SharedMemory memory_;
  std::size_t own_ = 0;
};

}  // namespace troupe
