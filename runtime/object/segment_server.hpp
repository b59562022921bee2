#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/result.hpp"
#include "runtime/object/segment_pool.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Gives the descriptors of a process's segments to processes of its machine and its user that know
/// their tokens, which the stores tell each other on the call plane: a unix socket in the abstract
/// namespace, one thread.
class SegmentServer {
 public:
  /// `pool` outlives it.
  static Result<std::unique_ptr<SegmentServer>> start(const std::string& name,
                                                      const SegmentPool& pool);
  ~SegmentServer();

 private:
  SegmentServer(UniqueFd listener, UniqueFd wake, const SegmentPool& pool);
  void run();
  bool answer(int socket);

  UniqueFd listener_, wake_;
  const SegmentPool& pool_;
  std::thread thread_;
};

/// Asks SegmentServers, over one connection to each. Callable from any thread.
class SegmentClient {
 public:
  /// Errors: not_found if there is no such segment any more; peer_died; timed_out.
  Result<UniqueFd> open(const std::string& server, std::uint64_t segment, std::uint64_t token);
  void forget(const std::string& server);

 private:
  struct Connection {
    std::mutex mutex;
    UniqueFd socket;
  };
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;
};

}  // namespace troupe
