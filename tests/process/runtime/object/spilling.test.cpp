#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/object/object_actors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t piece = 1 << 20;  ///< floats: 4 MiB

ClusterOptions small_store(const std::string& folder) {
  ClusterOptions options;
  options.object_store_bytes = std::uint64_t{32} << 20;
  options.object_spill_folder = folder;
  return options;
}

TEST(Spilling, makes_room_for_more_objects_than_memory_and_brings_them_back) {
  const tests::TemporaryFolder folder;
  const auto cluster = start_cluster(small_store(folder.path().string()));
  std::vector<ObjectRef<Floats>> refs;
  for (int i = 0; i < 16; ++i) {
    refs.push_back(must(cluster->put(Floats(piece, static_cast<float>(i)))));
  }
  EXPECT_GE(cluster->objects().counts().spills, 8);
  EXPECT_LE(cluster->objects().counts().held_bytes, std::uint64_t{32} << 20);
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(must(cluster->get(refs[i], limit)).get()[piece - 1], static_cast<float>(i));
    EXPECT_EQ(must(reader.call<&Reader::sum>(refs[i]).get(limit)), static_cast<double>(i) * piece);
  }
  EXPECT_GE(cluster->objects().counts().restores, 8);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // the files have no names
  refs.clear();
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().held == 0; }));
}

TEST(Spilling, leaves_alone_what_somebody_reads_and_says_who) {
  const tests::TemporaryFolder folder;
  const auto cluster = start_cluster(small_store(folder.path().string()));
  std::vector<ObjectView<Floats>> views;
  for (int i = 0; i < 8; ++i) {
    const auto ref = must(cluster->put(Floats(piece, 1.0F)));
    views.push_back(must(cluster->get(ref, limit)));
  }
  const auto refused = cluster->put(Floats(piece, 1.0F));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("driver holds 33554432 bytes, of which 33554432 are in use by views"));
  views.pop_back();
  EXPECT_TRUE(cluster->put(Floats(piece, 1.0F)).ok());
}

TEST(Spilling, is_asked_of_other_processes_of_the_node) {
  const tests::TemporaryFolder folder;
  const auto cluster = start_cluster(small_store(folder.path().string()));
  const auto first = must(cluster->spawn<Reader>({}).get(limit));
  const auto second = must(cluster->spawn<Reader>({}).get(limit));
  must(first.call<&Reader::fill>(std::uint64_t{7}, piece).get(limit));
  must(second.call<&Reader::fill>(std::uint64_t{7}, piece).get(limit));
  EXPECT_GT(must(first.call<&Reader::counts>().get(limit))[4], 0);
  EXPECT_EQ(must(first.call<&Reader::sum_of_first>().get(limit)), 0.0);
}

TEST(Spilling, does_not_happen_without_a_folder_and_the_dead_hold_nothing) {
  const auto cluster = start_cluster(small_store(""));
  const auto first = must(cluster->spawn<Reader>({.name = "first"}).get(limit));
  const auto second = must(cluster->spawn<Reader>({}).get(limit));
  must(first.call<&Reader::fill>(std::uint64_t{7}, piece).get(limit));
  const auto refused = second.call<&Reader::fill>(std::uint64_t{2}, piece).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("first"));
  EXPECT_THAT(refused.error().message, HasSubstr("object_spill_folder"));
  ASSERT_TRUE(cluster->kill(first).ok());
  EXPECT_TRUE(comes_true(
      [&] { return second.call<&Reader::fill>(std::uint64_t{2}, piece).get(limit).ok(); }));
}

}  // namespace
}  // namespace troupe::test
