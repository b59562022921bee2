#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/call/unix_socket.hpp"
#include "tests/process/runtime/object/object_actors.hpp"

namespace troupe::test {
namespace {

TEST(SilentOwners, hold_up_no_answers_but_those_of_calls_with_their_objects) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  // Connections to it wait for somebody to accept them.
  const std::string endpoint = fmt::format("troupe-silent-{}", ::getpid());
  const UniqueFd listener = must(listen_at(endpoint));
  const ObjectAddress address{{store_at(endpoint), 1}, endpoint, "silent", false};
  const ObjectRef<Floats> silent(
      std::make_shared<ObjectShare>(address, std::weak_ptr<ObjectStore>()));
  auto kept = reader.call<&Reader::keep>(silent);
  const auto pid = reader.call<&Reader::pid>().get(3s);
  EXPECT_TRUE(pid.ok()) << pid.error().message;
  const auto own = must(cluster->put(Floats(10, 2.0F)));
  const auto sum = reader.call<&Reader::sum>(own).get(3s);
  EXPECT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_FALSE(kept.ready());
}

}  // namespace
}  // namespace troupe::test
