#include <array>
#include <cstring>
#include <memory>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/frame_splitter.hpp"
#include "runtime/security/handshake.hpp"
#include "runtime/security/plane_keys.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// A link that keeps what is sent on it.
class DeafLink final : public Link {
 public:
  Result<void> send(std::span<const std::byte> body, std::span<const std::byte> trailer,
                    std::chrono::nanoseconds) override {
    Bytes frame(body.begin(), body.end());
    frame.append(trailer);
    sent.push_back(std::move(frame));
    return {};
  }
  void close() override { closed = true; }

  std::vector<Bytes> sent;
  bool closed = false;
};

/// A transport whose events the test triggers; timers never fire.
class ManualTransport final : public Transport {
 public:
  Result<void> start(TransportEvents wanted) override {
    events = std::move(wanted);
    return {};
  }
  const std::string& endpoint() const override { return endpoint_; }
  std::shared_ptr<Link> connect(const std::string&) override { return outgoing; }
  void run_after(std::chrono::milliseconds, std::function<void()>) override {}
  bool on_own_thread() const override { return true; }
  Result<void> flush(std::chrono::milliseconds) override { return {}; }
  void stop() override {}

  TransportEvents events;
  std::shared_ptr<DeafLink> outgoing = std::make_shared<DeafLink>();

 private:
  const std::string endpoint_ = "here";
};

class Mirror final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { call.answer(std::move(call.arguments)); }
};

}  // namespace

void changed_handshakes(Effort effort) {
  const Key key{std::byte{7}};
  std::size_t authentic = 0, refused = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    auto client = Handshake::as_client("client", call_pair_key(key, "client"), {});
    auto server = Handshake::as_server(key, {});
    ASSERT_TRUE(client.ok() && server.ok());
    const std::size_t changed = mutator.below(5);  // the message to change; 4: none
    bool was_changed = false;
    std::vector<std::byte> message = client->first_message();
    Handshake* receivers[] = {&*server, &*client};
    for (std::size_t i = 0; i < 4 && !message.empty(); ++i) {
      const std::vector<std::byte> before = message;
      if (i == changed) message = bytes_of(mutator.bytes(text_of(message)));
      was_changed = was_changed || message != before;
      const auto reply = receivers[i % 2]->on_message(message);
      EXPECT_LE(reply.message.size(), Handshake::max_message_bytes);
      EXPECT_FALSE(reply.done && was_changed) << "message " << i << " was not what was sent";
      authentic += reply.done ? 1 : 0;
      refused += reply.refused ? 1 : 0;
      if (reply.refused) break;
      message = reply.message;
    }
  });
  EXPECT_GT(authentic, 0U);
  EXPECT_GT(refused, 0U);
}

void changed_call_frames(Effort effort) {
  auto owned = std::make_unique<ManualTransport>();
  ManualTransport& transport = *owned;
  const auto hub = *CallHub::create(std::move(owned), {});
  hub->add_target(7, std::make_shared<Mirror>());
  // Two valid frames: a call to the mirror, and its answer.
  const auto honest = [&] {
    transport.outgoing->sent.clear();
    hub->call({8, "there", "other", "Other"}, 0, bytes_of("arguments"), [](const auto&) {});
    return transport.outgoing->sent.back();
  };
  std::size_t answered = 0, closed = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    Bytes frame = honest();
    if (mutator.one_in(2)) frame[frame.size() - 24] = std::byte{7};  // to the mirror
    if (mutator.one_in(2)) frame[frame.size() - 13] = std::byte{2};  // an answer
    if (!mutator.one_in(4)) frame = bytes_of(mutator.bytes(text_of(frame)));
    const bool ours = mutator.one_in(2);
    const auto link = ours ? transport.outgoing : std::make_shared<DeafLink>();
    link->closed = false;
    const std::size_t before = link->sent.size();
    transport.events.on_frame(link, frame);
    answered += link->sent.size() - before;
    closed += link->closed ? 1 : 0;
    // Unanswered calls end with their link, at once as it has not broken; the next one is new.
    if (!ours) transport.events.on_closed(link, fail(ErrorCode::cancelled, "over"));
    transport.events.on_closed(transport.outgoing, fail(ErrorCode::cancelled, "over"));
    transport.outgoing = std::make_shared<DeafLink>();
  });
  EXPECT_GT(answered, 0U);
  EXPECT_GT(closed, 0U);
  hub->stop();
}

void changed_streams(Effort effort) {
  std::size_t whole = 0, broken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string stream;
    for (std::size_t i = 0, frames = mutator.below(6); i < frames; ++i) {
      const auto length = static_cast<std::uint32_t>(1 + mutator.below(300));
      stream.append(reinterpret_cast<const char*>(&length), sizeof length);
      stream.append(length, 'x');
    }
    if (!mutator.one_in(4)) stream = mutator.bytes(stream);
    constexpr std::size_t limit = 400;
    FrameSplitter splitter(limit);
    std::array<std::byte, 128> scratch;
    for (std::size_t at = 0; at < stream.size();) {
      const auto room = splitter.room(scratch);
      const std::size_t size = std::min({1 + mutator.below(200), room.size(), stream.size() - at});
      std::memcpy(room.data(), stream.data() + at, size);
      at += size;
      const auto taken = splitter.consume(room.first(size), [&](Bytes& frame) -> Result<void> {
        EXPECT_TRUE(!frame.empty() && frame.size() <= limit);
        ++whole;
        return {};
      });
      broken += taken.ok() ? 0 : 1;
      if (!taken.ok()) break;
    }
  });
  EXPECT_GT(whole, 0U);
  EXPECT_GT(broken, 0U);
}

}  // namespace troupe::fuzz
