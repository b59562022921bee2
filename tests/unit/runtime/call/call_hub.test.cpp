#include "runtime/call/call_hub.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/call/future.hpp"
#include "runtime/call/unix_transport.hpp"

namespace troupe {

using namespace std::chrono_literals;

/// Answers every call with its own arguments, at once.
class Mirror final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { call.answer(std::move(call.arguments)); }
};

std::shared_ptr<CallHub> make_hub(const std::string& name, const Key& key,
                                  const Identity& identity = {}) {
  UnixTransport::Options options;
  options.endpoint = fmt::format("troupe-test-{}-{}", ::getpid(), name);
  options.key = key;
  options.identity = identity;
  return *CallHub::create(std::make_unique<UnixTransport>(std::move(options)), {});
}

Result<Bytes> call(CallHub& hub, const std::string& endpoint, ActorId id, Bytes arguments) {
  Promise<Bytes> promise;
  hub.call({id, endpoint, "mirror", "Mirror"}, 0, std::move(arguments),
           [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); });
  return promise.future().get(10s);
}

TEST(CallHub, calls_a_target_of_another_hub_and_refuses_unknown_ones) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{});
  server->add_target(7, std::make_shared<Mirror>());
  const auto answer = call(*client, server->endpoint(), 7, encode(42));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, encode(42));
  EXPECT_EQ(call(*client, server->endpoint(), 8, {}).error().code, ErrorCode::peer_died);
  server->stop();
  EXPECT_EQ(call(*client, server->endpoint(), 7, {}).error().code, ErrorCode::peer_died);
  client->stop();
}

TEST(CallHub, refuses_processes_of_other_jobs_and_builds) {
  const auto server = make_hub("server", Key{});
  server->add_target(7, std::make_shared<Mirror>());
  const auto stranger = make_hub("stranger", Key{std::byte{1}});
  const auto refused = call(*stranger, server->endpoint(), 7, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::permission_denied) << refused.error().message;
  const auto other_build = make_hub("other-build", Key{}, {protocol_version, Key{std::byte{9}}});
  const auto mismatch = call(*other_build, server->endpoint(), 7, {});
  ASSERT_FALSE(mismatch.ok());
  EXPECT_NE(mismatch.error().message.find("one build"), std::string::npos)
      << mismatch.error().message;
  for (const auto& hub : {server, stranger, other_build}) hub->stop();
}

TEST(CallHub, fails_calls_with_the_cause_that_supervision_tells) {
  const auto client = make_hub("client", Key{});
  client->mark_down(7, "it was eaten");
  const auto answer = call(*client, "troupe-test-nobody", 7, {});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::peer_died);
  EXPECT_EQ(answer.error().message, "it was eaten");
  client->stop();
}

}  // namespace troupe
