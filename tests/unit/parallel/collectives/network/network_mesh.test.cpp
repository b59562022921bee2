#include "parallel/collectives/network/network_mesh.hpp"

#include <cstring>
#include <future>

#include <gtest/gtest.h>

#include "parallel/collectives/network/network_addresses.hpp"
#include "runtime/link/link.hpp"
#include "tests/support/announced_wait.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::uint32_t>;

constexpr Key key{std::byte{7}};

// A holder of rank 1's key that sends frames of its own to rank 0.
class Impostor {
 public:
  explicit Impostor(const std::string& address_of_zero) {
    auto zero = std::move((*decode_group(std::vector{address_of_zero, one_}, 4096))[0]);
    loop_ = std::move(*LinkLoop::start());
    LinkEvents events;
    events.on_frame = [](const auto&, auto&) {};
    const LinkPeer peer{"rank", "0"}, self{"rank", "1"};
    link_ = *loop_->connect(zero.host, zero.port, self, peer,
                            link_key(*JobKeys::from_secret(key), peer, self), events);
  }
  const std::string& address() const { return one_; }
  void send(const Words& words) {
    const auto bytes = std::as_bytes(std::span(words));
    EXPECT_TRUE(link_->send(LinkFrame({bytes.begin(), bytes.end()})).ok());
  }

 private:
  std::string one_ = encode({1, 2, 4096, "127.0.0.1", 1});
  std::unique_ptr<LinkLoop> loop_;
  std::shared_ptr<TlsLink> link_;
};

// What a rank says that waits for a piece, after another rank has sent these frames.
ErrorCode outcome_of(const std::vector<Words>& frames) {
  auto mesh = std::move(*NetworkMesh::listen("lo", 0, 2, 4096, key));
  Impostor impostor(mesh->addresses());
  const std::vector<std::string> all{mesh->addresses(), impostor.address()};
  EXPECT_TRUE(mesh->connect(all, 10s).ok());
  for (const Words& frame : frames) impostor.send(frame);
  for (;;) {
    const auto closed = mesh->wait_closed();
    if (!closed) return closed.error().code;
  }
}

// kind (piece 1, credit 2, notice 3), lane, bytes as two words
TEST(NetworkMesh, frame_that_no_rank_sends_closes_the_group_as_corrupt) {
  const std::vector<std::vector<Words>> wrong{
      {{}},                                         // no head
      {{1, 0, 16}},                                 // part of one
      {{9, 0, 16, 0}},                              // no such kind
      {{1, 2, 16, 0}},                              // no such lane
      {{1, 0, 17, 0}},                              // another length than it says
      {{2, 0, 1, 0}},                               // a credit for nothing
      std::vector<Words>(257, Words{1, 0, 16, 0}),  // more than the lane has room for
      {Words(129, 1)},                              // a larger frame than any
  };
  for (std::size_t i = 0; i + 1 < wrong.size(); ++i) {
    EXPECT_EQ(outcome_of(wrong[i]), ErrorCode::corrupt_data) << "case " << i;
  }
  // The link ends itself.
  EXPECT_EQ(outcome_of(wrong.back()), ErrorCode::peer_died);
}

// Two ranks that are connected.
struct Pair {
  Pair() {
    const std::vector<std::string> all{zero->addresses(), one->addresses()};
    auto other = std::async(std::launch::async, [&] { return one->connect(all, 10s); });
    EXPECT_TRUE(zero->connect(all, 10s).ok());
    EXPECT_TRUE(other.get().ok());
  }
  std::unique_ptr<NetworkMesh> zero = std::move(*NetworkMesh::listen("lo", 0, 2, 4096, key));
  std::unique_ptr<NetworkMesh> one = std::move(*NetworkMesh::listen("lo", 1, 2, 4096, key));
};

TEST(NetworkMesh, wait_for_a_piece_is_announced) {
  const Pair pair;
  const auto wait = [&] {
    pair.one->arm(10s);
    EXPECT_TRUE(pair.one->take(0, NetworkMesh::Lane::message).ok());
  };
  const auto send = [&] {
    EXPECT_TRUE(pair.zero->put(1, NetworkMesh::Lane::message, {}, std::vector<std::byte>(8)).ok());
  };
  EXPECT_LT(test::least_ms_behind(wait, send), test::least_ms_to_find_a_wait / 2);
}

TEST(NetworkMesh, lane_is_full_until_the_other_rank_takes) {
  const auto [zero, one] = Pair();
  const std::vector<std::byte> piece(zero->piece_bytes());
  const auto put = [&] { return zero->put(1, NetworkMesh::Lane::message, {}, piece); };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(put().ok());
  auto ninth = std::async(std::launch::async, put);
  one->arm(10s);
  ASSERT_TRUE(one->take(0, NetworkMesh::Lane::message).ok());
  EXPECT_TRUE(ninth.get().ok());
  zero->arm(20ms);
  const auto full = put();
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::timed_out);
  // What has arrived can be taken after the end.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(one->take(0, NetworkMesh::Lane::message).ok());
  EXPECT_FALSE(one->take(0, NetworkMesh::Lane::message).ok());
}

}  // namespace
}  // namespace troupe
