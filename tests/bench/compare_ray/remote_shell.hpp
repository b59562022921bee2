#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe::bench {

/// A shell on another host, or on this one, that runs and waits for lines: a command costs a write
/// to it, and over ssh a packet, but no process and no connection.
class RemoteShell {
 public:
  /// Starts it over ssh, or here for an empty `host`, and waits until it has answered.
  static Result<RemoteShell> start(const std::string& host);

  /// Sends a command, and returns as soon as it is written.
  Result<void> send(const std::string& command);

 private:
  RemoteShell(ChildProcess process, UniqueFd to, UniqueFd from)
      : process_(std::move(process)), to_(std::move(to)), from_(std::move(from)) {}

  ChildProcess process_;
  UniqueFd to_, from_;
};

}  // namespace troupe::bench
