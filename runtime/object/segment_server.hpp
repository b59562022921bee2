#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/deadline.hpp"
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
/// abstract namespace, one thread. It keeps 1,024 connections; one more ends the one that has been
/// silent longest, whose reader connects again when it needs to.
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
  struct Reader {
    UniqueFd socket;
    std::uint64_t asked = 0;  ///< grows with the asks of all readers
  };
  void run();
  void add_reader(UniqueFd socket);
  bool answer(int socket);

  const std::string name_;
  const std::uint64_t token_;
  UniqueFd listener_, wake_;
  const SegmentPool& pool_;
  const Store store_;
  std::vector<Reader> readers_;  ///< of the thread
  std::uint64_t last_ask_ = 0;   ///< of the thread
  std::thread thread_;
};

/// Asks SegmentServers, over one connection to each, which threads use in turn. Callable from any
/// thread.
class SegmentClient {
 public:
  struct Given {
    UniqueFd fd = {};
    std::uint64_t bytes = 0;  ///< of the object, where it was asked for
  };
  /// Waits until the deadline, at most 5 s. Errors: not_found if there is no such segment any more,
  /// or the object cannot be pinned at once; peer_died of the server; timed_out, and then the
  /// object may be pinned yet; io, resource_exhausted of this process, as for lack of a descriptor.
  Result<Given> ask(const std::string& server, const SegmentAsk& ask, Deadline& deadline);
  /// Closes the connection to a server whose process has ended.
  void forget(const std::string& server);

 private:
  struct Connection {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_used = false;  ///< by one thread, whose the others are
    UniqueFd socket;
    std::chrono::milliseconds patience{};  ///< of the socket (SO_RCVTIMEO)
  };
  /// What one ask has of a connection.
  class Turn;
  static Result<void> connect(Connection& connection, const std::string& server);
  static bool set_patience(Connection& connection, Deadline& deadline);
  static Result<Given> ask_on(Connection& connection, const SegmentAsk& ask, Deadline& deadline);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;
};

}  // namespace troupe
