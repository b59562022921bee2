#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "runtime/base/log.hpp"
#include "runtime/control/caf_supervisor.hpp"
#include "runtime/control/control_limits.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/process/prompt_threads.hpp"
#include "runtime/security/handshake.hpp"

namespace troupe {
namespace {

class Server final : public ControlServer {
 public:
  Server(Events events, const std::optional<Key>& token) : events_(std::move(events)) {
    if (token) token_ = SecretKey(*token);
  }
  ~Server() override {
    is_stopping_ = true;
    loop_.reset();
    agents_.clear();
  }

  Result<void> listen(const std::string& address, PortRange ports) {
    TROUPE_TRY(loop_, LinkLoop::start(control_limits()));
    LinkEvents events{[this](const std::shared_ptr<TlsLink>& link) {
                        if (is_agent(link)) return on_open(link);
                        other_->events.on_open(link);
                      },
                      [this](const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame) {
                        if (!is_agent(link)) return other_->events.on_frame(link, frame);
                        supervisors_.at(link.get())->on_frame(std::move(frame));
                      },
                      [this](const std::shared_ptr<TlsLink>& link, const Error& why) {
                        if (!is_agent(link)) return other_->events.on_closed(link, why);
                        const auto supervisor = supervisors_.extract(link.get()).mapped();
                        pulse_.remove(supervisor);
                        supervisor->on_closed(why);
                      }};
    const auto key_of = [this](const LinkPeer& peer) -> std::optional<Key> {
      std::lock_guard lock(mutex_);
      if (other_ && peer == other_->peer) return other_->key.bytes;
      const auto admitted = admitted_.find(peer.name);
      if (peer.role != agent_role) return std::nullopt;
      if (admitted != admitted_.end()) return admitted->second.bytes;
      return token_ ? std::optional(join_key(token_->bytes, peer.name)) : std::nullopt;
    };
    TROUPE_TRY(port_, loop_->listen("control plane", address, key_of, std::move(events), ports));
    return {};
  }

  std::uint16_t port() const override { return port_; }

  void admit(const std::string& node, const Key& key) override {
    std::lock_guard lock(mutex_);
    admitted_.insert_or_assign(node, SecretKey(key));
  }

  void admit_other(const LinkPeer& peer, const Key& key, LinkEvents events) override {
    std::lock_guard lock(mutex_);
    other_.emplace(Other{peer, SecretKey(key), std::move(events)});
  }

  Result<void> send(AgentKey agent, const ControlMessage& message) override {
    std::shared_ptr<TlsLink> link;
    {
      std::lock_guard lock(mutex_);
      const auto found = agents_.find(agent);
      if (found == agents_.end()) return {};
      link = found->second;
    }
    auto sent = link->send(LinkFrame(encode_message(message)));
    if (!sent.ok() && sent.error().code == ErrorCode::peer_died) return {};
    return sent;
  }

 private:
  struct Other {
    LinkPeer peer;
    SecretKey key;
    LinkEvents events;
  };

  static bool is_agent(const std::shared_ptr<TlsLink>& link) {
    return link->peer().role == agent_role;
  }
  /// An agent has proven its key. It is let in once: introducing itself uses the key up.
  void on_open(const std::shared_ptr<TlsLink>& link) {
    const std::string& node = link->peer().name;
    AgentKey key;
    {
      std::lock_guard lock(mutex_);
      key = next_key_++;
      agents_.emplace(key, link);
    }
    SupervisorEvents events{
        [this, key](ControlMessage message) { on_message(key, std::move(message)); },
        [this, key, node](bool was_greeted, const Error& why) {
          on_over(key, node, was_greeted, why);
        }};
    ControlSession::Hello hello{node, this_build()};
    const auto supervisor =
        std::make_shared<Supervisor>(caf_, link, ControlSession::with_agent(std::move(hello)),
                                     Supervisor::Heartbeats::sent, std::move(events));
    supervisors_.emplace(link.get(), supervisor);
    pulse_.add(supervisor);
  }

  void on_message(AgentKey key, ControlMessage message) {
    if (const auto* hello = std::get_if<AgentReady>(&message)) {
      std::lock_guard lock(mutex_);
      admitted_.erase(hello->node);
    }
    if (!is_stopping_) events_.on_message(key, std::move(message));
  }

  void on_over(AgentKey key, const std::string& node, bool was_greeted, const Error& why) {
    std::shared_ptr<TlsLink> ended;  // not destroyed under the lock
    {
      std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      ended = agents_.extract(key).mapped();
    }
    if (was_greeted) return events_.on_lost(key, why);
    if (why.code != ErrorCode::peer_died) events_.on_refused(node, why);
  }

  const Events events_;
  std::optional<SecretKey> token_;  ///< lets agents of any name join; constant
  std::atomic<bool> is_stopping_ = false;
  std::mutex mutex_;
  std::map<std::string, SecretKey> admitted_;  ///< keys of the agents that are awaited
  std::optional<Other> other_;  ///< once it is there it stays as it is; its links come later
  AgentKey next_key_ = 1;
  std::map<AgentKey, std::shared_ptr<TlsLink>> agents_;
  /// Of all links that are open; the loop's thread only. Frames take no lock: whoever holds it may
  /// have to wait for a core.
  std::unordered_map<const TlsLink*, std::shared_ptr<Supervisor>> supervisors_;
  std::uint16_t port_ = 0;
  std::unique_ptr<LinkLoop> loop_;
  CafSystem caf_;  ///< its destructor waits for the actors, which use the members above
  Pulse pulse_{caf_};
};

}  // namespace

Key join_key(const Key& token, const std::string& node) {
  return link_key(*JobKeys::from_secret(token), driver_peer(), {agent_role, node});
}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& address,
                                                            Events events, PortRange ports,
                                                            const std::optional<Key>& token) {
  const PromptThreads heartbeats_are_in_time;
  auto server = std::make_unique<Server>(std::move(events), token);
  TROUPE_CHECK(server->listen(address, ports));
  return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace troupe
