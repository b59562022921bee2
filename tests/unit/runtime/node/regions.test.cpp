#include "runtime/node/regions.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace troupe {
namespace {

/// Opens a region, and returns which one it is.
ino_t open(Regions& regions, std::string_view name, Regions::Holder holder) {
  const auto fd = regions.open(name, 4096, holder);
  struct stat file{};
  if (!fd.ok() || ::fstat(fd->get(), &file) != 0) throw std::runtime_error("no region");
  return file.st_ino;
}

TEST(Regions, are_the_same_ones_for_all_who_ask_until_their_name_is_released) {
  Regions regions;
  const auto first = open(regions, "group/1/a", 1);
  EXPECT_EQ(open(regions, "group/1/a", 2), first);
  EXPECT_EQ(regions.open("group/1/a", 8192, 2).error().code, ErrorCode::invalid_argument);
  open(regions, "group/1/b", 1);
  open(regions, "group/2/a", 1);
  open(regions, "grou", 1);
  regions.release("group/1/");
  EXPECT_EQ(regions.size(), 2U);
  regions.remove(1);
  regions.remove(2);
  EXPECT_EQ(regions.size(), 0U);
}

TEST(Regions, are_forgotten_with_the_last_process_that_has_asked_for_them) {
  Regions regions;
  const auto shared = open(regions, "shared", 1);
  open(regions, "shared", 2);
  open(regions, "own", 1);
  regions.remove(1);
  EXPECT_EQ(regions.size(), 1U);
  EXPECT_EQ(open(regions, "shared", 3), shared);
  regions.remove(2);
  regions.remove(3);
  regions.remove(7);
  EXPECT_EQ(regions.size(), 0U);
}

}  // namespace
}  // namespace troupe
