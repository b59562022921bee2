#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/call/transport.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {

/// Where a process of a job is.
struct NetworkAddress {
  /// The same in processes that see each other's unix sockets: those below one agent, and those of
  /// local agents and the driver. Never told from host names or the like.
  std::string locality;
  /// Numeric; where processes of other localities reach this one. Empty: nobody does.
  std::string address;
  PortRange ports{};  ///< of which it listens at one
};

/// Links to all processes of a job: UnixTransport within a locality, TLS 1.3 over TCP (TlsLink)
/// across localities, both with a key of each pair: who connects asks for it, who listens computes
/// it from its own. An endpoint is "SOCKET", or "SOCKET LOCALITY ADDRESS
/// PORT" where other localities may connect.
///
/// Events come on the unix transport's thread, as its contract has it; those of TLS links are
/// handed over to it. While a peer reads slowly, a sender waits once 64 MiB are queued on one link
/// (see Link::send).
Result<std::unique_ptr<Transport>> make_network_transport(CallKeys keys, const NetworkAddress& own);

}  // namespace troupe
