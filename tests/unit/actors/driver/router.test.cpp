#include "actors/driver/router.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace troupe {
namespace {

/// Takes about bytes / 4 + max_tokens tokens.
Request text_request(std::uint64_t id, std::string prompt, std::int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

/// `bytes` that share a prefix only with those of the same `first`.
std::string prompt_of(char first, std::size_t bytes) { return std::string(bytes, first); }

/// A prompt with `shared` common bytes, and `own` bytes that only `id` has.
std::string prompt_of(std::uint64_t id, std::size_t shared, std::size_t own) {
  std::string ending = std::to_string(id);
  ending.resize(own, '.');
  return prompt_of('s', shared) + ending;
}

TEST(Router, estimates_a_quarter_of_the_bytes_or_the_ids_and_what_may_be_generated) {
  EXPECT_EQ(estimated_tokens(text_request(1, prompt_of('a', 400), 16)), 100 + 16);
  Request ids;
  ids.kind = PromptKind::token_ids;
  ids.prompt_ids = {1, 2, 3};
  ids.max_tokens = 5;
  EXPECT_EQ(estimated_tokens(ids), 3 + 5);
  ids.max_tokens.reset();
  EXPECT_GT(estimated_tokens(ids), 3);
}

TEST(Router, gives_equal_requests_to_replicas_in_turn) {
  Router router(3);
  for (std::uint64_t id = 0; id < 9; ++id) {
    EXPECT_EQ(router.choose(text_request(id, "Once", 100)), static_cast<int>(id % 3)) << id;
  }
  for (int replica = 0; replica < 3; ++replica) {
    EXPECT_EQ(router.outstanding_tokens(replica), 303) << replica;
  }
}

TEST(Router, counts_tokens_and_not_requests) {
  Router router(2);
  EXPECT_EQ(router.choose(text_request(0, "long", 1000)), 0);
  for (std::uint64_t id = 1; id <= 9; ++id) {
    EXPECT_EQ(router.choose(text_request(id, "short", 100)), 1) << id;
  }
  EXPECT_EQ(router.choose(text_request(10, "short", 300)), 1);
  EXPECT_EQ(router.choose(text_request(11, "short", 100)), 0);
}

TEST(Router, gives_tokens_back_when_a_request_is_finished_and_only_once) {
  Router router(2);
  EXPECT_EQ(router.choose(text_request(7, "a", 1000)), 0);
  EXPECT_EQ(router.choose(text_request(8, "b", 100)), 1);
  router.finished(7);
  router.finished(7);
  router.finished(99);
  EXPECT_EQ(router.outstanding_tokens(0), 0);
  EXPECT_EQ(router.outstanding_tokens(1), 100);
  EXPECT_EQ(router.choose(text_request(9, "c", 100)), 0);
}

TEST(Router, takes_a_request_where_its_beginning_was_read_before) {
  Router router(3);
  EXPECT_EQ(router.choose(text_request(0, prompt_of('a', 4096), 10)), 0);
  EXPECT_EQ(router.choose(text_request(1, prompt_of('b', 4096), 10)), 1);
  EXPECT_EQ(router.choose(text_request(2, prompt_of('c', 4096), 10)), 2);
  for (std::uint64_t id = 0; id < 3; ++id) router.finished(id);
  // All are idle; each conversation continues on its replica.
  EXPECT_EQ(router.choose(text_request(4, prompt_of('b', 4096) + " and then?", 10)), 1);
  EXPECT_EQ(router.choose(text_request(5, prompt_of('c', 4096) + " and then?", 10)), 2);
  EXPECT_EQ(router.choose(text_request(6, prompt_of('d', 4096), 10)), 0);
}

TEST(Router, follows_beginnings_of_token_ids_too) {
  Router router(2);
  Request first;
  first.id = 1;
  first.kind = PromptKind::token_ids;
  first.prompt_ids.assign(640, 5);
  first.max_tokens = 1;
  Request second = first;
  second.id = 2;
  second.prompt_ids.front() = 6;
  EXPECT_EQ(router.choose(first), 0);
  EXPECT_EQ(router.choose(second), 1);
  router.finished(1);
  router.finished(2);
  second.id = 3;
  EXPECT_EQ(router.choose(second), 1);
}

TEST(Router, does_not_take_an_equal_piece_in_another_place_for_the_same_beginning) {
  Router router(2);
  const std::string piece = prompt_of('x', Router::piece_bytes);
  EXPECT_EQ(router.choose(text_request(0, "to the first", 10)), 0);
  EXPECT_EQ(router.choose(text_request(1, prompt_of('a', Router::piece_bytes) + piece, 10)), 1);
  router.finished(0);
  router.finished(1);
  EXPECT_EQ(router.choose(text_request(2, prompt_of('b', Router::piece_bytes) + piece, 10)), 0);
}

TEST(Router, does_not_pile_up_requests_on_one_replica_when_all_begin_alike) {
  constexpr int replicas = 4;
  Router router(replicas);
  std::vector<int> taken(replicas, 0);
  for (std::uint64_t id = 0; id < 400; ++id) {
    const Request request = text_request(id, prompt_of(id, 2048, 64), 64);
    ++taken[static_cast<std::size_t>(router.choose(request))];
  }
  const auto [fewest, most] = std::ranges::minmax(taken);
  EXPECT_GE(fewest, 90) << testing::PrintToString(taken);
  EXPECT_LE(most, 110) << testing::PrintToString(taken);
}

TEST(Router, is_ahead_of_the_least_busy_by_no_more_than_what_a_request_saves) {
  Router router(3);
  std::int64_t largest_saving = 0;
  for (std::uint64_t id = 0; id < 1000; ++id) {
    const std::size_t shared = (id * 37 % 9) * 512;
    router.choose(text_request(id, prompt_of(id, shared, 32), static_cast<std::int64_t>(id % 50)));
    if (id >= 20 && id % 2 == 0) router.finished(id - 20);
    largest_saving = std::max(largest_saving, static_cast<std::int64_t>(shared) / 4 + 8 + 50);
  }
  std::vector<std::int64_t> left;
  for (int replica = 0; replica < 3; ++replica) left.push_back(router.outstanding_tokens(replica));
  // Requests finish unevenly, so allow a few times the saving, of hundreds of thousands of tokens
  // in all.
  EXPECT_LE(std::ranges::max(left) - std::ranges::min(left), 4 * largest_saving)
      << testing::PrintToString(left);
}

TEST(Router, remembers_a_bounded_number_of_beginnings_and_forgets_the_oldest) {
  Router router(2);
  const auto remembers_on_1 = [&](std::uint64_t id, const std::string& prompt) {
    const int replica = router.choose(text_request(id, prompt, 0));
    router.finished(id);
    return replica == 1;
  };
  const std::string kept = prompt_of('k', 1024);
  const std::string old = prompt_of('o', 1024);
  EXPECT_EQ(router.choose(text_request(1, "keeps the first busy", 1000)), 0);
  EXPECT_TRUE(remembers_on_1(2, kept));
  EXPECT_TRUE(remembers_on_1(3, old));
  router.finished(1);
  EXPECT_TRUE(remembers_on_1(4, kept));

  constexpr std::size_t long_pieces = 1024;
  for (std::uint64_t id = 10; id < 10 + 2 * Router::max_pieces / long_pieces; ++id) {
    std::string prompt = std::to_string(id) + "|";
    prompt.resize(long_pieces * Router::piece_bytes, 'z');
    router.choose(text_request(id, prompt, 0));
    router.finished(id);
    EXPECT_LE(router.remembered_pieces(), Router::max_pieces);
    EXPECT_TRUE(remembers_on_1(5, kept));
  }
  EXPECT_EQ(router.remembered_pieces(), Router::max_pieces);
  EXPECT_FALSE(remembers_on_1(6, old));
}

TEST(Router, of_one_replica_remembers_nothing) {
  Router router(1);
  EXPECT_EQ(router.choose(text_request(1, prompt_of('a', 4096), 10)), 0);
  EXPECT_EQ(router.remembered_pieces(), 0U);
}

TEST(Router, gives_nothing_to_a_closed_replica_until_it_is_open_again) {
  Router router(3);
  router.close(0);
  EXPECT_EQ(router.choose(text_request(0, "Once", 100)), 1);
  EXPECT_EQ(router.choose(text_request(1, "Once", 100)), 2);
  EXPECT_EQ(router.choose(text_request(2, "Once", 100)), 1);
  router.open(0);
  EXPECT_EQ(router.choose(text_request(3, "Once", 100)), 0);
  for (int replica = 0; replica < 3; ++replica) router.close(replica);
  EXPECT_FALSE(router.has_open());
}

TEST(Router, forgets_the_prefixes_that_a_closed_replica_was_given) {
  Router router(2);
  const std::string prefix = prompt_of('p', 40 * Router::piece_bytes);
  EXPECT_EQ(router.choose(text_request(0, prefix, 1)), 0);
  router.finished(0);
  EXPECT_EQ(router.choose(text_request(1, "other", 100)), 0);
  router.close(0);
  router.open(0);
  EXPECT_EQ(router.choose(text_request(2, prefix, 1)), 1) << "neither knows it, and 1 has less";
}

}  // namespace
}  // namespace troupe
