#include "launcher/job/pending_requests.hpp"

#include <gtest/gtest.h>

#include "launcher/job/engine_session.hpp"

namespace troupe {
namespace {

BatchRequest request_of(std::string custom_id, std::size_t bytes) {
  BatchRequest request;
  request.header.custom_id = std::move(custom_id);
  request.request.prompt = std::string(bytes, 'x');
  return request;
}

TEST(PendingRequests, names_requests_and_gives_their_headers_back_once) {
  PendingRequests pending(10);
  BatchRequest a = request_of("a", 1);
  BatchRequest b = request_of("b", 1);
  pending.add(a);
  pending.add(b);
  EXPECT_NE(a.request.id, b.request.id);
  EXPECT_EQ(pending.size(), 2U);
  EXPECT_EQ(pending.take(a.request.id)->custom_id, "a");
  EXPECT_FALSE(pending.take(a.request.id).has_value());
  EXPECT_EQ(pending.take(b.request.id)->custom_id, "b");
  EXPECT_TRUE(pending.empty());
}

TEST(PendingRequests, are_bounded_in_number) {
  PendingRequests pending(2);
  BatchRequest first = request_of("a", 1);
  BatchRequest second = request_of("b", 1);
  pending.add(first);
  EXPECT_TRUE(pending.has_room());
  pending.add(second);
  EXPECT_FALSE(pending.has_room());
  (void)pending.take(first.request.id);
  EXPECT_TRUE(pending.has_room());
}

TEST(PendingRequests, are_as_many_as_the_replicas_that_serve_take) {
  PendingRequests pending(1);
  BatchRequest first = request_of("a", 1);
  pending.add(first);
  EXPECT_FALSE(pending.has_room());
  pending.set_most(2);
  EXPECT_TRUE(pending.has_room());
  pending.set_most(1);
  EXPECT_FALSE(pending.has_room());
  EXPECT_EQ(pending.size(), 1U);
  EngineSpec engine;
  engine.data_parallel_size = 6;
  engine.max_num_seqs = 8;
  EXPECT_EQ(request_window(engine), 6U * 80);
  EXPECT_EQ(request_window(engine, 1, 3), 2U * 80) << "one step domain of two replicas";
  EXPECT_EQ(request_window(engine, 0, 3), 2U * 80) << "they wait for it";
}

TEST(PendingRequests, wait_while_the_engine_keeps_too_much_of_those_before) {
  PendingRequests pending(10);
  BatchRequest first = request_of("a", 1);
  pending.add(first);
  pending.note_kept(0.6);
  EXPECT_FALSE(pending.has_room());
  pending.note_kept(0.4);
  EXPECT_TRUE(pending.has_room());
  pending.note_kept(0.6);
  (void)pending.take(first.request.id);
  EXPECT_TRUE(pending.has_room()) << "nothing is kept of none";
}

TEST(PendingRequests, are_bounded_in_bytes) {
  PendingRequests pending(100);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(pending.has_room()) << "after " << i << " prompts of 8 MiB";
    BatchRequest large = request_of("large", std::size_t{8} << 20);
    EXPECT_GE(pending.add(large), std::size_t{16} << 20) << "of text, two bytes each of tokens";
    ids.push_back(large.request.id);
  }
  EXPECT_FALSE(pending.has_room());
  (void)pending.take(ids[2]);
  EXPECT_TRUE(pending.has_room());
}

TEST(PendingRequests, count_the_bytes_of_long_names) {
  PendingRequests pending(100);
  for (int i = 0; i < 4; ++i) {
    BatchRequest named = request_of(std::string(std::size_t{16} << 20, 'n'), 1);
    pending.add(named);
  }
  EXPECT_FALSE(pending.has_room());
}

}  // namespace
}  // namespace troupe
