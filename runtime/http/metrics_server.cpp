#include "runtime/http/metrics_server.hpp"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/http/doorman.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

constexpr unsigned max_connections = 256;
constexpr unsigned timeout_seconds = 1;

constexpr const char* text_type = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* plain_type = "text/plain; charset=utf-8";

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<SocketAddress> parse_address(const std::string& address, std::uint16_t port) {
  SocketAddress result;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&result.storage, &v4, sizeof v4);
    result.size = sizeof v4;
    return result;
  }
  if (::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&result.storage, &v6, sizeof v6);
    result.size = sizeof v6;
    return result;
  }
  return fail(ErrorCode::invalid_argument,
              "metrics cannot be served: the address is to be numeric, such as 127.0.0.1, found {}",
              address);
}

/// Opens a listening socket; sets `port` to its actual port.
Result<UniqueFd> listen_on(const std::string& address, std::uint16_t& port) {
  TROUPE_TRY(SocketAddress at, parse_address(address, port));
  const auto failed = [&](int why) {
    return fail(ErrorCode::io, "cannot open the port of metrics, {}:{}: {}", address, port,
                std::strerror(why));
  };
  UniqueFd fd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return failed(errno);
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  auto* generic = reinterpret_cast<sockaddr*>(&at.storage);
  if (::bind(fd.get(), generic, at.size) != 0) return failed(errno);
  if (::listen(fd.get(), SOMAXCONN) != 0) return failed(errno);
  if (::getsockname(fd.get(), generic, &at.size) != 0) return failed(errno);
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (at.storage.ss_family == AF_INET) {
    std::memcpy(&v4, &at.storage, sizeof v4);
    port = ntohs(v4.sin_port);
  } else {
    std::memcpy(&v6, &at.storage, sizeof v6);
    port = ntohs(v6.sin6_port);
  }
  return fd;
}

MHD_Result respond(MHD_Connection* connection, unsigned status, const char* type,
                   std::string_view body) {
  // libmicrohttpd copies the text, which does not outlive the call.
  MHD_Response* response = MHD_create_response_from_buffer(
      body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

/// MHD_AccessHandlerCallback; `closure` is the content callback.
MHD_Result answer(void* closure, MHD_Connection* connection, const char* url, const char* method,
                  const char*, const char*, std::size_t* upload_size, void**) {
  const std::string_view asked = method;
  if (asked != MHD_HTTP_METHOD_GET && asked != MHD_HTTP_METHOD_HEAD) {
    *upload_size = 0;
    return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, plain_type, "only GET is known here\n");
  }
  if (url != std::string_view("/metrics")) {
    return respond(connection, MHD_HTTP_NOT_FOUND, plain_type, "metrics are at /metrics\n");
  }
  const std::string text = (*static_cast<std::function<std::string()>*>(closure))();
  if (text.empty()) {
    return respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE, plain_type, "no metrics are known\n");
  }
  return respond(connection, MHD_HTTP_OK, text_type, text);
}

}  // namespace

struct MetricsServer::Daemon {
  explicit Daemon(MHD_Daemon* running) : handle(running) {}
  ~Daemon() {
    doorman.reset();  // it adds connections
    MHD_stop_daemon(handle);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// The daemon closes the connection, even if it cannot take it.
  void add(UniqueFd connection) const {
    SocketAddress peer;
    peer.size = sizeof peer.storage;
    auto* generic = reinterpret_cast<sockaddr*>(&peer.storage);
    if (::getpeername(connection.get(), generic, &peer.size) != 0) return;
    (void)MHD_add_connection(handle, connection.release(), generic, peer.size);
  }

  MHD_Daemon* handle;
  std::unique_ptr<Doorman> doorman;
};

MetricsServer::MetricsServer() = default;
MetricsServer::~MetricsServer() = default;

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            std::uint16_t port,
                                                            std::function<std::string()> content) {
  std::unique_ptr<MetricsServer> server(new MetricsServer());
  server->address_ = address;
  server->port_ = port;
  server->content_ = std::move(content);
  TROUPE_TRY(UniqueFd fd, listen_on(address, server->port_));
  MHD_Daemon* daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr,
      &answer, &server->content_, MHD_OPTION_CONNECTION_LIMIT, max_connections,
      MHD_OPTION_CONNECTION_TIMEOUT, timeout_seconds, MHD_OPTION_END);
  if (daemon == nullptr) {
    return fail(ErrorCode::io, "cannot serve metrics on {}:{}", address, server->port_);
  }
  server->daemon_ = std::make_unique<Daemon>(daemon);
  TROUPE_TRY(server->daemon_->doorman,
             Doorman::start("metrics", std::move(fd),
                            [daemon = server->daemon_.get()](UniqueFd connection) {
                              daemon->add(std::move(connection));
                            }));
  return server;
}

std::string MetricsServer::url() const {
  const bool v6 = address_.find(':') != address_.npos;
  return fmt::format("http://{}{}{}:{}/metrics", v6 ? "[" : "", address_, v6 ? "]" : "", port_);
}

}  // namespace troupe
