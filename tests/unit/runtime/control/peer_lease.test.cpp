#include "runtime/control/peer_lease.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = PeerLease::Clock;

constexpr Clock::time_point start{};

bool has_expired(PeerLease& lease, Clock::time_point now) {
  return lease.left(now) == Clock::duration::zero();
}

TEST(PeerLease, gives_a_silent_peer_up_but_not_one_that_was_stopped_together_with_it) {
  PeerLease lease(1800ms, start);
  auto now = start;
  for (int i = 0; i < 20; ++i) lease.hear(now += 200ms);
  now += 60s;  // everything was stopped
  EXPECT_FALSE(has_expired(lease, now));
  lease.hear(now += 100ms);
  int looks = 0;
  while (!has_expired(lease, now)) {
    now += 200ms;
    ++looks;
  }
  EXPECT_EQ(looks, 9) << "1.8 s";
}

TEST(PeerLease, counts_from_the_last_frame_and_not_from_the_look_that_sees_it) {
  PeerLease lease(1800ms, start);
  lease.hear(start + 50ms);
  EXPECT_EQ(lease.left(start + 200ms), 1650ms);
  EXPECT_EQ(lease.left(start + 400ms), 1450ms);
}

TEST(PeerLease, does_not_expire_while_it_is_suspended) {
  PeerLease lease(1800ms, start);
  lease.suspend();
  auto now = start;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lease.left(now += 200ms), 1800ms);
  lease.resume(now);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(has_expired(lease, now += 200ms));
  EXPECT_TRUE(has_expired(lease, now += 200ms));
}

}  // namespace
}  // namespace troupe
