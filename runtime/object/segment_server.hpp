#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/result.hpp"
#include "runtime/object/held_objects.hpp"
#include "runtime/object/segment_pool.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// What is asked of a SegmentServer: the descriptor of a segment, of which the asker has a pin, or,
/// if `segment` is 0, of the object's, which is pinned for the reader first.
struct SegmentAsk {
  std::uint64_t token = 0;  ///< the server's
  std::uint64_t segment = 0;
  ObjectId object{};
  StoreId reader = 0;
  PinNumber pin = 0;
};

/// Gives the descriptors of a process's segments to processes of its machine and its user that know
/// its random token, which the stores tell each other on the call plane: a unix socket in the
/// abstract namespace, one thread.
class SegmentServer {
 public:
  /// What the server asks of its store, on its thread.
  struct Store {
    struct Pinned {
      std::shared_ptr<Segment> segment;
      std::uint64_t bytes = 0;
    };
    /// Pins the object, if that can be done at once.
    std::function<std::optional<Pinned>(const SegmentAsk& ask)> pin;
    /// The reader of that pin has gone.
    std::function<void(const SegmentAsk& ask)> unpin;
  };
  /// `pool` outlives it.
  static Result<std::unique_ptr<SegmentServer>> start(const std::string& name,
                                                      const SegmentPool& pool, Store store);
  ~SegmentServer();
  const std::string& name() const { return name_; }
  std::uint64_t token() const { return token_; }

 private:
  SegmentServer(std::string name, UniqueFd listener, UniqueFd wake, std::uint64_t token,
                const SegmentPool& pool, Store store);
  void run();
  bool answer(int socket);

  const std::string name_;
  const std::uint64_t token_;
  UniqueFd listener_, wake_;
  const SegmentPool& pool_;
  const Store store_;
  std::thread thread_;
};

/// Asks SegmentServers, over one connection to each. Callable from any thread.
class SegmentClient {
 public:
  struct Given {
    UniqueFd fd = {};
    std::uint64_t bytes = 0;  ///< of the object, where it was asked for
  };
  /// Waits at most `timeout`, and five seconds; a whole one of the kernel's ticks in any case.
  /// Errors: not_found if there is no such segment any more, or the object cannot be pinned at
  /// once; peer_died, timed_out of the server; io, resource_exhausted of this process, as for lack
  /// of a descriptor.
  Result<Given> ask(const std::string& server, const SegmentAsk& ask,
                    std::chrono::nanoseconds timeout);
  /// Closes the connection to a server whose process has ended.
  void forget(const std::string& server);

 private:
  struct Connection {
    std::timed_mutex mutex;
    UniqueFd socket;
  };
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;
};

}  // namespace troupe
