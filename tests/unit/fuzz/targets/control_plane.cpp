#include <sys/socket.h>
#include <unistd.h>

#include "runtime/control/control_session.hpp"
#include "runtime/link/frames.hpp"
#include "runtime/link/link_peer.hpp"
#include "runtime/link/tls_session.hpp"
#include "runtime/process/unique_fd.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

AgentReady right_hello() {
  AgentReady hello;
  hello.node = "node0";
  hello.host = "here";
  return hello;
}

ProcessBootstrap bootstrap() {
  ProcessBootstrap message;
  message.call_name = "troupe-job-1";
  message.process_name = "worker-0";
  message.node = "node0";
  return message;
}

KeyReply key_reply() {
  KeyReply reply;
  reply.request = 2;
  reply.ok = true;
  return reply;
}

ControlMessage some_message(Mutator& mutator) {
  const std::vector<ControlMessage> messages{
      right_hello(),
      StartActor{.process = 3,
                 .process_name = "worker-0",
                 .actor = {7, "", "worker-0", "Worker"},
                 .arguments = Bytes(mutator.below(40)),
                 .devices = {0, 1},
                 .hides_other_devices = true},
      ActorStarted{7, "troupe-endpoint", 12},
      ActorFailed{7, ErrorCode::io, "no such file"},
      StopActor{3, 7},
      ActorEnded{7, true, "done"},
      StopProcess{3, true},
      ProcessEnded{.process = 3, .pid = 12, .signalled = true, .code = 9},
      FollowActor{7},
      ActorGone{7, false, Bytes(mutator.below(40))},
      ActorMoved{{7, "endpoint", "name", "type", 1, true}},
      SpawnRequest{1, 3, 7, Bytes(mutator.below(40)), "Worker", Bytes(mutator.below(40))},
      SpawnReply{1, 3, true, {7, "endpoint", "name", "type"}, ErrorCode::internal, ""},
      StopOwned{7, 8},
      Shutdown{1000},
      bootstrap(),
      Heartbeat{},
      RegionRequest{1, "ring", 4096, false},
      RegionReply{1, false, ErrorCode::not_found, "no"},
      KeyRequest{2, 3, {"steps", {"left", "right"}}},
      CallKeyRequest{3, "troupe-1-2"},
      key_reply(),
      Suspend{},
      Suspended{},
      Resume{},
      NodeGone{"node1", "is lost"}};
  return messages[mutator.below(messages.size())];
}

/// The first bytes that a connecting end sends.
Result<std::string> client_hello(const TlsContext& context) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  const UniqueFd here(ends[0]), there(ends[1]);
  TROUPE_TRY(auto session, TlsSession::connect(context, here.get(), "agent/node0", Key{}));
  TROUPE_TRY(const bool proven, session->handshake());
  EXPECT_FALSE(proven);
  std::string bytes(4096, '\0');
  const ssize_t count = ::read(there.get(), bytes.data(), bytes.size());
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

}  // namespace

void changed_control_messages(Effort effort) {
  constexpr ControlEdge edges[] = {ControlEdge::agent_to_driver, ControlEdge::driver_to_agent,
                                   ControlEdge::process_to_agent, ControlEdge::agent_to_process};
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string bytes = text_of(encode_message(some_message(mutator)));
    if (!mutator.one_in(8)) bytes = mutator.bytes(bytes);
    const ControlEdge edge = edges[mutator.below(4)];
    const auto message = decode_message(bytes_of(bytes), edge);
    if (message.ok()) {
      ++taken;
      EXPECT_TRUE(travels_on(edge, *message));
      EXPECT_EQ(text_of(encode_message(*message)), bytes);
    }
    // A peer that violates the protocol does not become an agent.
    auto session = ControlSession::with_agent({"node0", {}});
    const auto first = session.on_frame(bytes_of(bytes));
    EXPECT_EQ(first.ok(), session.is_greeted());
  });
  EXPECT_GT(taken, 0U);
}

void changed_link_streams(Effort effort) {
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    FrameQueue queue;
    for (std::size_t i = 0; i < 1 + mutator.below(5); ++i) {
      queue.push(LinkFrame(std::vector<std::byte>(mutator.below(300))));
    }
    std::string stream = mutator.bytes(text_of(queue.front()));
    constexpr std::size_t limit = 4096;
    FrameReader reader(limit);
    for (std::size_t at = 0; at < stream.size();) {
      const auto room = reader.room();
      ASSERT_FALSE(room.empty());
      const std::size_t count = std::min({room.size(), stream.size() - at, 1 + mutator.below(64)});
      std::copy_n(bytes_of(stream).begin() + static_cast<std::ptrdiff_t>(at), count, room.begin());
      at += count;
      if (!reader.filled(count).ok()) break;
      std::vector<std::byte> frame;
      EXPECT_TRUE(!reader.take(frame) || frame.size() <= limit);
    }
    const auto peer = LinkPeer::parse(mutator.bytes("agent/node0"));
    EXPECT_TRUE(!peer.ok() || *LinkPeer::parse(peer->text()) == *peer);
  });
}

void changed_client_hellos(Effort effort) {
  const auto context = TlsContext::create();
  ASSERT_TRUE(context.ok()) << context.error().message;
  const auto hello = client_hello(**context);
  ASSERT_TRUE(hello.ok()) << hello.error().message;
  ASSERT_GT(hello->size(), 100U);
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const UniqueFd here(ends[0]), there(ends[1]);
    const auto session = TlsSession::accept(
        **context, here.get(), [](std::string_view) { return std::optional<Key>(Key{}); });
    ASSERT_TRUE(session.ok());
    const std::string bytes = mutator.bytes(*hello);
    ASSERT_EQ(::write(there.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    for (int i = 0; i < 4; ++i) {
      const auto proven = (*session)->handshake();
      if (!proven.ok()) return;
      ASSERT_FALSE(*proven) << "without the client's last message nobody is proven";
    }
  });
}

}  // namespace troupe::fuzz
