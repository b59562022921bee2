#include "runtime/memory/shared_memory.hpp"

#include <algorithm>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace troupe {
namespace {

TEST(SharedMemory, starts_zeroed_and_shows_writes_in_a_second_mapping) {
  auto first = SharedMemory::create(10'000);
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_EQ(first->bytes().size(), 10'000u);
  EXPECT_TRUE(std::ranges::all_of(first->bytes(), [](std::byte b) { return b == std::byte{0}; }));

  auto fd = first->duplicate_fd();
  ASSERT_TRUE(fd.ok()) << fd.error().message;
  auto second = SharedMemory::map(std::move(*fd));
  ASSERT_TRUE(second.ok()) << second.error().message;
  ASSERT_EQ(second->bytes().size(), 10'000u);
  EXPECT_NE(first->bytes().data(), second->bytes().data());
  first->bytes()[9'999] = std::byte{42};
  EXPECT_EQ(second->bytes()[9'999], std::byte{42});
}

TEST(SharedMemory, keeps_its_address_over_a_move_and_leaves_nothing_behind) {
  auto created = SharedMemory::create(4096);
  ASSERT_TRUE(created.ok());
  std::byte* address = created->bytes().data();
  SharedMemory moved = std::move(*created);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_TRUE(created->bytes().empty());
  EXPECT_EQ(created->fd(), -1);
}

TEST(SharedMemory, cannot_be_shrunk_under_another_process) {
  auto region = SharedMemory::create(4096);
  ASSERT_TRUE(region.ok());
  EXPECT_NE(::ftruncate(region->fd(), 0), 0);
}

TEST(SharedMemory, closes_its_descriptor_on_exec) {
  auto region = SharedMemory::create(4096);
  ASSERT_TRUE(region.ok());
  EXPECT_NE(::fcntl(region->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SharedMemory, refuses_zero_bytes) {
  const auto region = SharedMemory::create(0);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code, ErrorCode::invalid_argument);
}

TEST(SharedMemory, refuses_a_descriptor_whose_size_could_still_change) {
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  const auto mapped = SharedMemory::map(std::move(unsealed));
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(mapped.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(SharedMemory::map(UniqueFd()).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace troupe
