#pragma once

#include <memory>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// CurveZMQ (rfc.zeromq.org/spec/26) for the sockets of a Channel; `socket` and `context` are those
/// of ZeroMQ. Secrets are the raw 32 bytes; public keys are computed from them.

Result<void> make_curve_server(void* socket, const Key& own);
Result<void> make_curve_client(void* socket, const Key& own, const Key& listener);

/// Answers a context's authentication requests (ZAP, rfc.zeromq.org/spec/27): admits the connector
/// whose public key is the expected one and refuses all others. Knowing the listener's public key
/// is thus not enough. One per context, made before the listener binds; used by the listener's
/// thread.
class CurveGate {
 public:
  static Result<std::unique_ptr<CurveGate>> open(void* context, const Key& connector);
  ~CurveGate();
  CurveGate(const CurveGate&) = delete;
  CurveGate& operator=(const CurveGate&) = delete;

  /// The socket to poll; readable when there is a request to answer.
  void* socket() const { return socket_; }
  /// Answers all requests that have arrived.
  void answer();

 private:
  CurveGate(void* socket, const Key& admitted) : socket_(socket), admitted_(admitted) {}

  void* socket_;
  Key admitted_;  ///< a public key
};

}  // namespace troupe
