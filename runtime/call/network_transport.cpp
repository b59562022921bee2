#include "runtime/call/network_transport.hpp"

#include <array>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/call/unix_transport.hpp"
#include "runtime/call/unsent_links.hpp"
#include "runtime/link/link.hpp"

namespace troupe {
namespace {

constexpr const char* process_role = "process";

/// An endpoint, taken apart.
struct Endpoint {
  std::string socket;    ///< of the unix transport; names the process
  std::string locality;  ///< empty, with the rest, where only unix sockets lead there
  std::string address;
  std::uint16_t port = 0;

  std::string text() const {
    return port == 0 ? socket : fmt::format("{} {} {} {}", socket, locality, address, port);
  }
  static Endpoint parse(std::string_view text) {
    Endpoint endpoint;
    std::array<std::string_view, 4> words;
    for (auto& word : words) {
      word = text.substr(0, text.find(' '));
      text.remove_prefix(std::min(word.size() + 1, text.size()));
    }
    endpoint.socket = words[0];
    std::from_chars(words[3].data(), words[3].data() + words[3].size(), endpoint.port);
    if (endpoint.port == 0) return endpoint;
    endpoint.locality = words[1];
    endpoint.address = words[2];
    return endpoint;
  }
};

/// A TlsLink as the call plane sees it. An own one has no TlsLink until its key has come. May
/// outlive its transport.
class NetworkLink final : public Link, public std::enable_shared_from_this<NetworkLink> {
 public:
  NetworkLink(std::thread::id loop_thread, std::shared_ptr<UnsentLinks<NetworkLink>> unsent)
      : loop_thread_(loop_thread), unsent_(std::move(unsent)) {}
  ~NetworkLink() override { unsent_->remove(this); }

  void attach(std::shared_ptr<TlsLink> link) {
    std::lock_guard lock(mutex_);
    if (is_over_) return;
    for (auto& frame : std::exchange(early_, {})) (void)link->post(std::move(frame));
    early_bytes_ = 0;
    early_goal_ = link->accepted_bytes();
    link_ = std::move(link);
    settled_.notify_all();
  }
  /// Lets go of the TLS link, whose events refer to this one.
  void finish() {
    std::shared_ptr<TlsLink> link;
    std::lock_guard lock(mutex_);
    is_over_ = true;
    early_.clear();
    early_bytes_ = 0;
    link_.swap(link);
    settled_.notify_all();
  }

  Result<void> send(std::span<const std::byte> body, std::span<const std::byte> trailer,
                    std::chrono::nanoseconds wait) override {
    TROUPE_CHECK(queue(body, trailer, wait));
    unsent_->add(*this);
    return {};
  }

  void close() override {
    if (const auto link = tls()) link->close();
  }

  /// How far it has to send for all frames so far to be sent; empty while there is no TlsLink.
  using Goal = std::optional<std::uint64_t>;
  Goal goal() const {
    std::lock_guard lock(mutex_);
    if (!link_) return std::nullopt;
    return link_->accepted_bytes();
  }
  /// True also if the link is over.
  bool has_reached(const Goal& goal) const {
    std::lock_guard lock(mutex_);
    if (is_over_) return true;
    if (!link_) return early_bytes_ == 0;
    return link_->sent_bytes() >= goal.value_or(early_goal_);
  }
  bool has_sent_all() const { return has_reached(goal()); }

 private:
  Result<void> queue(std::span<const std::byte> body, std::span<const std::byte> trailer,
                     std::chrono::nanoseconds wait) {
    std::vector<std::byte> bytes;
    bytes.reserve(body.size() + trailer.size());
    bytes.insert(bytes.end(), body.begin(), body.end());
    bytes.insert(bytes.end(), trailer.begin(), trailer.end());
    const bool may_wait = std::this_thread::get_id() != loop_thread_;
    std::shared_ptr<TlsLink> link;
    {
      std::unique_lock lock(mutex_);
      const auto settled = [&] { return is_over_ || link_ || early_bytes_ <= max_early_bytes; };
      if (may_wait && !settled()) {
        Deadline deadline(wait);
        if (!wait_until(settled_, lock, deadline, settled)) {
          return fail(ErrorCode::resource_exhausted, "{} bytes wait for the key of a new link",
                      early_bytes_);
        }
        wait = deadline.left();
      }
      if (is_over_) return fail(ErrorCode::peer_died, "the link is over");
      if (!link_) {
        early_bytes_ += bytes.size();
        early_.emplace_back(std::move(bytes));
        return {};
      }
      link = link_;
    }
    if (!may_wait) return link->post(LinkFrame(std::move(bytes)));
    return link->send(LinkFrame(std::move(bytes)),
                      std::chrono::ceil<std::chrono::milliseconds>(wait));
  }

  std::shared_ptr<TlsLink> tls() const {
    std::lock_guard lock(mutex_);
    return link_;
  }

  static constexpr std::size_t max_early_bytes = LinkLimits().max_queued_bytes;

  const std::thread::id loop_thread_;
  const std::shared_ptr<UnsentLinks<NetworkLink>> unsent_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;  ///< there is a TlsLink, or the link is over
  std::shared_ptr<TlsLink> link_;
  std::vector<LinkFrame> early_;  ///< sent before there was a link
  std::size_t early_bytes_ = 0;
  std::uint64_t early_goal_ = 0;  ///< of the TlsLink, for these frames to be sent
  bool is_over_ = false;
};

class NetworkTransport final : public Transport {
 public:
  NetworkTransport(UnixTransport::Options options, const NetworkAddress& own)
      : own_{.socket = options.keys.name, .locality = own.locality, .address = own.address},
        ports_(own.ports),
        own_key_(options.keys.listener),
        unix_(std::move(options)) {}
  ~NetworkTransport() override { stop(); }

  Result<void> start(TransportEvents events) override {
    events_ = events;
    TROUPE_CHECK(unix_.start(std::move(events)));
    TROUPE_TRY(loop_, LinkLoop::start());
    const auto key_of = [this](const LinkPeer& peer) -> std::optional<Key> {
      if (peer.role != process_role) return std::nullopt;
      return call_pair_key(own_key_.bytes, peer.name);
    };
    TROUPE_TRY(own_.port,
               loop_->listen("call plane", own_.address, key_of, events_of_accepted(), ports_));
    endpoint_ = own_.text();
    return {};
  }

  const std::string& endpoint() const override { return endpoint_; }

  std::shared_ptr<Link> connect(const std::string& text) override {
    const Endpoint peer = Endpoint::parse(text);
    if (peer.locality == own_.locality) return unix_.connect(peer.socket);
    auto link = make_link();
    if (peer.port == 0) {
      hand_over([this, link, text] {
        close(link, fail(ErrorCode::not_found, "there is no way from here to {}", text));
      });
      return link;
    }
    unix_.ask_key(peer.socket, [this, peer, link](const Result<Key>& key) {
      const auto connected = key.ok() ? begin_to_connect(peer, *key, link) : key.error();
      if (!connected.ok()) close(link, connected.error());
    });
    return link;
  }

  void run_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    unix_.run_after(delay, std::move(task));
  }
  bool on_own_thread() const override { return unix_.on_own_thread(); }

  Result<void> flush(std::chrono::milliseconds timeout) override {
    Deadline deadline = deadline_in(timeout);
    // What is sent later does not count: others may keep a link busy for ever.
    std::vector<std::pair<std::shared_ptr<NetworkLink>, NetworkLink::Goal>> goals;
    for (auto& link : unsent_->take_stock()) {
      const auto goal = link->goal();
      goals.emplace_back(std::move(link), goal);
    }
    TROUPE_CHECK(unix_.flush(timeout));
    const BlockingScope waits;
    while (true) {
      std::erase_if(goals, [](const auto& one) { return one.first->has_reached(one.second); });
      if (goals.empty()) return {};
      if (deadline.is_over()) {
        return fail(ErrorCode::timed_out, "another host does not read what it is sent");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void stop() override {
    if (loop_) loop_->stop();
    unix_.stop();
  }

 private:
  LinkPeer own_peer() const { return {process_role, own_.socket}; }

  std::shared_ptr<NetworkLink> make_link() const {
    return std::make_shared<NetworkLink>(unix_.own_thread(), unsent_);
  }

  /// Ends a link that has never had a TlsLink; on the unix transport's thread.
  void close(const std::shared_ptr<NetworkLink>& link, const Error& why) {
    link->finish();
    events_.on_closed(link, why);
  }

  Result<void> begin_to_connect(const Endpoint& peer, const Key& key,
                                const std::shared_ptr<NetworkLink>& link) {
    const LinkPeer listener{process_role, peer.socket};
    LinkEvents events{
        nullptr,
        [this, link](const std::shared_ptr<TlsLink>&, std::vector<std::byte>& frame) {
          on_frame(link, frame);
        },
        [this, link](const std::shared_ptr<TlsLink>&, const Error& why) { on_closed(link, why); }};
    TROUPE_TRY(auto made, loop_->connect(peer.address, peer.port, own_peer(), listener, key,
                                         std::move(events)));
    link->attach(std::move(made));
    return {};
  }

  LinkEvents events_of_accepted() {
    return {[this](const std::shared_ptr<TlsLink>& tls) {
              auto link = make_link();
              link->attach(tls);
              accepted_[tls.get()] = link;
            },
            [this](const std::shared_ptr<TlsLink>& tls, std::vector<std::byte>& frame) {
              on_frame(accepted_.at(tls.get()), frame);
            },
            [this](const std::shared_ptr<TlsLink>& tls, const Error& why) {
              const auto found = accepted_.extract(tls.get());
              on_closed(found.mapped(), why);
            }};
  }

  void on_frame(const std::shared_ptr<NetworkLink>& link, std::vector<std::byte>& frame) {
    auto moved = std::make_shared<Bytes>(std::move(frame));
    hand_over([this, link, moved] { events_.on_frame(link, *moved); });
  }

  void on_closed(const std::shared_ptr<NetworkLink>& link, const Error& why) {
    link->finish();
    hand_over([this, link, why] { events_.on_closed(link, why); });
  }

  /// Runs `event` on the unix transport's thread, in order.
  void hand_over(std::function<void()> event) {
    std::lock_guard lock(mutex_);
    events_due_.push_back(std::move(event));
    if (events_due_.size() > 1) return;
    unix_.run_after(std::chrono::milliseconds(0), [this] {
      std::vector<std::function<void()>> due;
      {
        std::lock_guard inner(mutex_);
        due.swap(events_due_);
      }
      for (const auto& one : due) one();
    });
  }

  Endpoint own_;
  const PortRange ports_;
  const SecretKey own_key_;
  TransportEvents events_;
  std::string endpoint_;
  UnixTransport unix_;

  const std::shared_ptr<UnsentLinks<NetworkLink>> unsent_ =
      std::make_shared<UnsentLinks<NetworkLink>>();
  std::mutex mutex_;
  std::vector<std::function<void()>> events_due_;

  std::map<const TlsLink*, std::shared_ptr<NetworkLink>> accepted_;  ///< the loop's thread only
  std::unique_ptr<LinkLoop> loop_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_network_transport(CallKeys keys,
                                                          const NetworkAddress& own) {
  UnixTransport::Options options;
  options.keys = std::move(keys);
  options.identity.build = this_build();
  if (own.address.empty()) {
    return std::unique_ptr<Transport>(std::make_unique<UnixTransport>(std::move(options)));
  }
  return std::unique_ptr<Transport>(std::make_unique<NetworkTransport>(std::move(options), own));
}

}  // namespace troupe
