#include "parallel/collectives/network/network_collectives.hpp"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using Rows = std::vector<std::int64_t>;

template <class T>
ErrorCode code_of(const Result<T>& result) {
  EXPECT_FALSE(result.ok());
  return result.ok() ? ErrorCode::internal : result.error().code;
}

// All tests but those of strangers use the key of nothing but zeros.
NetworkRendezvous announce(int rank, int ranks, std::size_t room = 4096, const Key& key = {}) {
  auto announced = NetworkRendezvous::announce("lo", rank, ranks, room, key);
  EXPECT_TRUE(announced.ok()) << announced.error().message;
  return std::move(*announced);
}

// A group of two in one process.
struct Pair {
  explicit Pair(std::size_t room = 4096) {
    NetworkRendezvous one = announce(0, 2, room);
    NetworkRendezvous two = announce(1, 2, room);
    const std::vector<std::string> all{one.addresses(), two.addresses()};
    auto other = std::async(std::launch::async, [&] { return two.connect(all); });
    auto connected = one.connect(all);
    EXPECT_TRUE(connected.ok()) << connected.error().message;
    first = std::move(*connected);
    second = std::move(*other.get());
  }
  // Both send their shutdown notices at the same time.
  ~Pair() {
    auto other = std::async(std::launch::async, [&] { second.reset(); });
    first.reset();
    other.wait();
  }

  std::unique_ptr<NetworkCollectives> first;
  std::unique_ptr<NetworkCollectives> second;
};

TEST(NetworkRendezvous, interface_without_address_is_not_found) {
  const auto announced = NetworkRendezvous::announce("no-such-if", 0, 2, 4096, {});
  ASSERT_EQ(code_of(announced), ErrorCode::not_found);
  EXPECT_NE(announced.error().message.find("no-such-if"), std::string::npos);
}

TEST(NetworkRendezvous, ranks_outside_the_group_are_refused) {
  EXPECT_EQ(code_of(NetworkRendezvous::announce("lo", 2, 2, 4096, {})),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(NetworkRendezvous::announce("lo", 0, 65, 4096, {})),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(NetworkRendezvous::announce("lo", 0, 2, 0, {})), ErrorCode::invalid_argument);
}

TEST(NetworkRendezvous, addresses_of_another_group_are_refused) {
  const std::string zero = announce(0, 2).addresses();
  const std::string one = announce(1, 2).addresses();
  const auto refused = [](std::vector<std::string> all) {
    return code_of(announce(0, 2).connect(all));
  };
  EXPECT_EQ(refused({zero, "nonsense"}), ErrorCode::corrupt_data);
  EXPECT_EQ(refused({zero, one.substr(0, one.size() - 1)}), ErrorCode::corrupt_data);
  EXPECT_EQ(refused({zero, one + "x"}), ErrorCode::corrupt_data);
  EXPECT_EQ(refused({one, zero}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({zero}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({zero, announce(1, 2, 8192).addresses()}), ErrorCode::invalid_argument);
  EXPECT_EQ(
      refused({announce(0, 3).addresses(), announce(1, 3).addresses(), announce(2, 3).addresses()}),
      ErrorCode::invalid_argument);
}

TEST(NetworkRendezvous, rank_that_does_not_connect_is_named_by_the_timeout) {
  // The higher rank connects and the lower one waits to be connected to.
  for (const int rank : {0, 1}) {
    NetworkRendezvous own = announce(rank, 2);
    const NetworkRendezvous other = announce(1 - rank, 2);
    std::vector<std::string> all{own.addresses(), other.addresses()};
    if (rank == 1) std::swap(all[0], all[1]);
    const auto waits = own.connect(all, std::chrono::milliseconds(30));
    ASSERT_EQ(code_of(waits), ErrorCode::timed_out);
    EXPECT_TRUE(
        waits.error().message.ends_with(fmt::format("rank {} did not come within 30 ms", 1 - rank)))
        << waits.error().message;
  }
}

TEST(NetworkRendezvous, stranger_with_another_key_is_refused_while_the_ranks_still_meet) {
  NetworkRendezvous zero = announce(0, 2);
  NetworkRendezvous one = announce(1, 2);
  NetworkRendezvous stranger = announce(1, 2, 4096, Key{std::byte{1}});
  const std::vector<std::string> seen_by_stranger{zero.addresses(), stranger.addresses()};
  EXPECT_EQ(code_of(stranger.connect(seen_by_stranger)), ErrorCode::permission_denied);

  const std::vector<std::string> all{zero.addresses(), one.addresses()};
  auto other = std::async(std::launch::async, [&] { return one.connect(all); });
  auto first = zero.connect(all);
  ASSERT_TRUE(first.ok()) << first.error().message;
  auto second = other.get();
  ASSERT_TRUE(second.ok()) << second.error().message;
  const auto leaving = std::async(std::launch::async, [&] { second->reset(); });
  first->reset();
  leaving.wait();
}

TEST(NetworkRendezvous, rank_connects_to_no_stranger_who_listens_in_a_rank_s_place) {
  const NetworkRendezvous stranger = announce(0, 2, 4096, Key{std::byte{1}});
  NetworkRendezvous one = announce(1, 2);
  const std::vector<std::string> all{stranger.addresses(), one.addresses()};
  EXPECT_EQ(code_of(one.connect(all)), ErrorCode::permission_denied);
}

TEST(NetworkCollectives, what_is_sent_ahead_arrives_while_its_sender_is_elsewhere) {
  const Pair pair;
  const CollectiveCall call{CollectiveCall::Kind::all_to_all, 0, 4};
  const std::vector<std::byte> sent(4, std::byte{7});
  Transfers from_first(2);
  from_first.send(1, sent);
  ASSERT_TRUE(pair.first->send_ahead(call, from_first).ok());

  std::vector<std::byte> received(4);
  Transfers to_second(2);
  to_second.receive(0, received);
  pair.second->set_timeout(std::chrono::seconds(5));
  const auto came = pair.second->exchange(call, std::move(to_second));
  ASSERT_TRUE(came.ok()) << came.error().message;
  EXPECT_EQ(received, sent);

  EXPECT_TRUE(from_first.empty());
  EXPECT_TRUE(pair.first->exchange(call, std::move(from_first)).ok());
}

TEST(NetworkCollectives, rank_whose_arguments_are_wrong_ends_the_wait_of_the_others) {
  const Pair group;
  const HostTensor tensor(DType::f32, {4});
  auto waiting =
      std::async(std::launch::async, [&] { return group.first->all_reduce_tree(tensor); });
  EXPECT_EQ(code_of(group.second->all_gather(tensor, tensor, Rows{1})),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(waiting.get()), ErrorCode::cancelled);
  EXPECT_EQ(code_of(group.second->barrier()), ErrorCode::cancelled);
}

TEST(NetworkCollectives, all_to_all_refuses_rows_that_the_sender_does_not_send) {
  const Pair group;
  const HostTensor send(DType::i32, {3, 1});
  const HostTensor received(DType::i32, {2, 1});
  const HostTensor received_by_other(DType::i32, {2, 1});
  auto other = std::async(std::launch::async, [&] {
    return group.second->all_to_all(send, Rows{3, 0}, received_by_other, Rows{2, 0});
  });
  const auto done = group.first->all_to_all(send, Rows{1, 2}, received, Rows{1, 1});
  ASSERT_EQ(code_of(done), ErrorCode::invalid_argument);
  EXPECT_NE(done.error().message.find("rank 1 sends 12 bytes to rank 0, which expects 4"),
            std::string::npos)
      << done.error().message;
  other.wait();
}

TEST(NetworkCollectives, root_may_write_its_tensor_again_once_broadcast_has_returned) {
  const Pair group(std::size_t{32} << 20);
  const HostTensor sent(DType::u8, {16 << 20});
  const HostTensor received(DType::u8, {16 << 20});
  std::ranges::fill(sent->span<std::uint8_t>(), 7);
  ASSERT_TRUE(group.first->broadcast(sent, 0).ok());  // long before all of it has left
  std::ranges::fill(sent->span<std::uint8_t>(), 9);
  ASSERT_TRUE(group.second->broadcast(received, 0).ok());
  EXPECT_EQ(std::ranges::count(received->span<std::uint8_t>(), 7), 16 << 20);
}

TEST(NetworkCollectives, message_of_another_length_is_refused_and_ends_the_group) {
  const Pair group;
  ASSERT_TRUE(group.first->send(HostTensor(DType::u8, {8}), 1).ok());
  const auto done = group.second->receive(HostTensor(DType::u8, {9}), 0);
  ASSERT_EQ(code_of(done), ErrorCode::invalid_argument);
  EXPECT_NE(done.error().message.find("rank 0 sends 8 bytes to rank 1, which expects 9"),
            std::string::npos)
      << done.error().message;
  EXPECT_EQ(code_of(group.second->barrier()), ErrorCode::cancelled);
}

TEST(NetworkCollectives, rank_that_has_left_is_named_by_who_waits_for_it) {
  Pair group;
  group.first.reset();
  const HostTensor tensor(DType::u8, {8});
  const auto done = group.second->receive(tensor, 0);
  ASSERT_EQ(code_of(done), ErrorCode::peer_died);
  EXPECT_NE(done.error().message.find("rank 0 has left the group"), std::string::npos)
      << done.error().message;
}

TEST(NetworkCollectives, timeout_may_shrink_between_calls) {
  const Pair group;
  auto other = std::async(std::launch::async, [&] { return group.second->barrier(); });
  ASSERT_TRUE(group.first->barrier().ok());
  ASSERT_TRUE(other.get().ok());
  group.first->set_timeout(std::chrono::milliseconds(5));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of(group.first->barrier()), ErrorCode::timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace troupe
