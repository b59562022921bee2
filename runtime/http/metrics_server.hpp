#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// Serves a text at /metrics by HTTP, for Prometheus to scrape. Bounded: a Doorman admits
/// connections that have sent a request, at most 256 at once, each at most 1 s without traffic; two
/// threads.
class MetricsServer {
 public:
  /// Listens on the numeric IPv4 or IPv6 `address`; port 0 lets the kernel choose. `content` is
  /// called on the server's thread for each scrape; an empty text means that there are none at the
  /// moment (503). Errors: invalid_argument for a malformed
  /// address; io if the port cannot be opened, with the reason.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      std::uint16_t port,
                                                      std::function<std::string()> content);
  /// Closes the port; `content` is not called after it returns.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  std::uint16_t port() const { return port_; }
  /// "http://127.0.0.1:9100/metrics"
  std::string url() const;

 private:
  struct Daemon;

  MetricsServer();

  std::function<std::string()> content_;
  std::string address_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Daemon> daemon_;  // last: it calls content_ until it is gone
};

}  // namespace troupe
