#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// What an agent needs in order to join a job: where the driver listens, which node the agent is
/// to be, and the key of this pair. Everything else, the job's secret too, comes over the link that
/// the key opens, so a ticket lets one agent in, once.
struct NodeTicket {
  std::string node;  ///< 1 to 128 of letters, digits, '.', '-' and '_'
  std::string host;  ///< the driver's, as the node knows it: an address or a name
  std::uint16_t port = 0;
  SecretKey key;

  /// One line with its newline: "troupe-ticket 1 NODE HOST PORT KEY", the key in hexadecimal.
  std::string text() const;
  /// Errors: invalid_argument, which does not repeat the text.
  static Result<NodeTicket> parse(std::string_view text);
};

/// Reads a ticket's line from a pipe or socket and not a byte more. A line that is a MUNGE
/// credential is decoded, by `unmunge`. Errors: timed_out; peer_died if the other end closes;
/// invalid_argument; as run_program.
Result<NodeTicket> read_ticket(int fd, std::chrono::milliseconds timeout);

}  // namespace troupe
