#include "runtime/control/control_plane.hpp"

#include <map>
#include <thread>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/openssl/all.hpp>
#include <openssl/err.h>
#include <sys/epoll.h>

#include "runtime/base/log.hpp"
#include "runtime/security/tls_identity.hpp"

namespace troupe {
namespace {

std::string to_text(const ControlMessage& message) {
  const Bytes bytes = encode_message(message);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<ControlMessage> from_text(const std::string& text) {
  return decode_message(std::as_bytes(std::span(text)));
}

/// Reaches a private member of a class by naming it in an explicit instantiation (the one place
/// where the language allows that), because CAF 0.17 offers no way to limit a turn of its I/O loop.
template <auto member>
struct Expose {
  friend std::vector<epoll_event>& events_of_turn(caf::io::network::default_multiplexer& loop) {
    return loop.*member;
  }
};
std::vector<epoll_event>& events_of_turn(caf::io::network::default_multiplexer& loop);
template struct Expose<&caf::io::network::default_multiplexer::pollset_>;

/// CAF's OpenSSL module never empties OpenSSL's per-thread queue of errors. One that a killed agent
/// or a stranger's failed handshake leaves there makes SSL_get_error report failure on the next
/// healthy connection, which CAF then closes: one dead node would take others along. So the loop
/// handles one event a turn, and the queue is emptied after each.
class Multiplexer final : public caf::io::network::default_multiplexer {
 public:
  using default_multiplexer::default_multiplexer;
  void run() override {
    while (num_socket_handlers() > 0) {
      events_of_turn(*this).resize(1);
      run_once();
      ::ERR_clear_error();
    }
  }
};

/// A CAF system with the job's credentials. The few threads sleep when idle (policy "sharing"; the
/// default policy polls), and I/O is done without a detour over workers: both measured, see
/// docs/architecture.md.
struct System {
  TlsFiles files;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> caf;

  static Result<std::unique_ptr<System>> create(const JobKeys& keys) {
    auto system = std::make_unique<System>();
    TROUPE_TRY(const auto identity, derive_tls_identity(keys));
    TROUPE_TRY(system->files, make_tls_files(identity));
    auto& config = system->config;
    config.load<caf::io::middleman, Multiplexer>();
    config.load<caf::openssl::manager>();
    config.openssl_certificate = system->files.certificate_path;
    config.openssl_key = system->files.key_path;
    config.openssl_cafile = system->files.authority_path;
    config.set("scheduler.policy", caf::atom("sharing"));
    config.set("scheduler.max-threads", std::size_t{1});
    config.set("middleman.workers", std::size_t{0});
    config.set("middleman.heartbeat-interval", caf::timespan(std::chrono::milliseconds(200)));
    config.set("middleman.connection-timeout", caf::timespan(std::chrono::milliseconds(1200)));
    config.set("logger.verbosity", caf::atom("quiet"));
    system->caf = std::make_unique<caf::actor_system>(config);
    return system;
  }
};

caf::behavior serve_agents(caf::event_based_actor* self, const ControlServer::Events& events) {
  struct Agents {
    std::map<caf::actor_addr, AgentKey> keys;
    std::map<AgentKey, caf::actor> handles;
    AgentKey next = 1;
  };
  auto agents = std::make_shared<Agents>();
  self->set_down_handler([=](const caf::down_msg& down) {
    const auto found = agents->keys.find(down.source);
    if (found == agents->keys.end()) return;
    const AgentKey key = found->second;
    agents->keys.erase(found);
    agents->handles.erase(key);
    events.on_lost(key);
  });
  self->set_exit_handler([=](const caf::exit_msg& exit) { self->quit(exit.reason); });
  return {
      [=](caf::put_atom, const std::string& text) {
        auto message = from_text(text);
        const auto sender = caf::actor_cast<caf::actor>(self->current_sender());
        if (!message.ok() || !sender) return;
        auto [entry, is_new] = agents->keys.emplace(sender.address(), agents->next);
        if (is_new) {
          agents->handles.emplace(agents->next++, sender);
          self->monitor(sender);
          // Runs on the I/O thread at once when the connection breaks: see Multiplexer.
          sender->attach_functor([](const caf::error&) { ::ERR_clear_error(); });
        }
        events.on_message(entry->second, *std::move(message));
      },
      [=](caf::forward_atom, std::uint64_t agent, const std::string& text) {
        const auto found = agents->handles.find(agent);
        if (found != agents->handles.end()) self->send(found->second, caf::put_atom::value, text);
      },
  };
}

class CafServer final : public ControlServer {
 public:
  ~CafServer() override {
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    actor_ = nullptr;
    system_->caf.reset();  // waits until the actor has ended
  }

  static Result<std::unique_ptr<ControlServer>> start(const JobKeys& keys,
                                                      const std::string& address, Events events) {
    auto server = std::make_unique<CafServer>();
    TROUPE_TRY(server->system_, System::create(keys));
    server->actor_ = server->system_->caf->spawn(serve_agents, std::move(events));
    auto port = caf::openssl::publish(server->actor_, 0, address.c_str());
    if (!port) {
      return fail(ErrorCode::io, "the control plane cannot listen at {}: {}", address,
                  server->system_->caf->render(port.error()));
    }
    server->port_ = *port;
    return std::unique_ptr<ControlServer>(std::move(server));
  }

  std::uint16_t port() const override { return port_; }
  void send(AgentKey agent, const ControlMessage& message) override {
    caf::anon_send(actor_, caf::forward_atom::value, std::uint64_t{agent}, to_text(message));
  }

 private:
  std::unique_ptr<System> system_;
  caf::actor actor_;
  std::uint16_t port_ = 0;
};

caf::behavior serve_driver(caf::event_based_actor* self, const caf::actor& driver,
                           const ControlClient::Events& events, const std::string& hello) {
  self->set_down_handler([=](const caf::down_msg&) { events.on_lost(); });
  self->set_exit_handler([=](const caf::exit_msg& exit) { self->quit(exit.reason); });
  self->monitor(driver);
  self->send(driver, caf::put_atom::value, hello);
  return {
      [=](caf::put_atom, const std::string& text) {
        if (auto message = from_text(text); message.ok()) events.on_message(*std::move(message));
      },
      [=](caf::forward_atom, const std::string& text) {
        self->send(driver, caf::put_atom::value, text);
      },
  };
}

class CafClient final : public ControlClient {
 public:
  ~CafClient() override {
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    actor_ = nullptr;
    system_->caf.reset();
  }

  static Result<std::unique_ptr<ControlClient>> connect(const JobKeys& keys,
                                                        const std::string& host, std::uint16_t port,
                                                        const AgentReady& hello, Events events,
                                                        std::chrono::milliseconds timeout) {
    auto client = std::make_unique<CafClient>();
    TROUPE_TRY(client->system_, System::create(keys));
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
      auto driver = caf::openssl::remote_actor(*client->system_->caf, host, port);
      if (driver) {
        client->actor_ =
            client->system_->caf->spawn(serve_driver, *driver, std::move(events), to_text(hello));
        return std::unique_ptr<ControlClient>(std::move(client));
      }
      // A CAF handshake that straddles a heartbeat can fail although nothing is wrong.
      if (std::chrono::steady_clock::now() > deadline) {
        return fail(ErrorCode::io, "cannot reach the driver at {}:{}: {}", host, port,
                    client->system_->caf->render(driver.error()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void send(const ControlMessage& message) override {
    caf::anon_send(actor_, caf::forward_atom::value, to_text(message));
  }

 private:
  std::unique_ptr<System> system_;
  caf::actor actor_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::start(const JobKeys& keys,
                                                            const std::string& address,
                                                            Events events) {
  return CafServer::start(keys, address, std::move(events));
}

Result<std::unique_ptr<ControlClient>> ControlClient::connect(
    const JobKeys& keys, const std::string& host, std::uint16_t port, const AgentReady& hello,
    Events events, std::chrono::milliseconds timeout) {
  return CafClient::connect(keys, host, port, hello, std::move(events), timeout);
}

}  // namespace troupe
