#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/call/call_frame.hpp"
#include "runtime/call/transport.hpp"

namespace troupe {

/// Takes frames, and keeps of each its trailer.
class DeafLink final : public Link {
 public:
  Result<void> send(std::span<const std::byte> /*body*/, std::span<const std::byte> trailer,
                    std::chrono::nanoseconds /*wait*/) override {
    std::memcpy(&sent_.emplace_back(), trailer.data(), sizeof(Trailer));
    return {};
  }
  void close() override {}
  const std::vector<Trailer>& sent() const { return sent_; }

 private:
  std::vector<Trailer> sent_;
};

/// A transport whose thread is the test's: what is due runs when the test says so, however long
/// that would be from now.
class ManualTransport final : public Transport {
 public:
  Result<void> start(TransportEvents events) override {
    events_ = std::move(events);
    return {};
  }
  const std::string& endpoint() const override { return endpoint_; }
  std::shared_ptr<Link> connect(const std::string& /*endpoint*/) override {
    return links_.emplace_back(std::make_shared<DeafLink>());
  }
  void run_after(std::chrono::milliseconds /*delay*/, std::function<void()> task) override {
    due_.push_back(std::move(task));
  }
  bool on_own_thread() const override { return true; }
  Result<void> flush(std::chrono::milliseconds /*timeout*/) override { return {}; }
  void stop() override { due_.clear(); }

  /// Runs what is due, but not what that makes due.
  void run_due() {
    for (const auto& task : std::exchange(due_, {})) task();
  }
  /// Lets this call be answered by the other end of the link.
  void answer(std::size_t link, CallId call) {
    const Trailer trailer{.call = call, .kind = FrameKind::answer};
    const auto bytes = std::as_bytes(std::span(&trailer, 1));
    Bytes frame(bytes.size());
    std::memcpy(frame.data(), bytes.data(), bytes.size());
    events_.on_frame(links_[link], frame);
  }
  /// In the order in which they were opened.
  const std::vector<std::shared_ptr<DeafLink>>& links() const { return links_; }

 private:
  const std::string endpoint_ = "here";
  TransportEvents events_;
  std::vector<std::function<void()>> due_;
  std::vector<std::shared_ptr<DeafLink>> links_;
};

}  // namespace troupe
