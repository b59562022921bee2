#include "runtime/security/sha256.hpp"

#include <string_view>

#include <gtest/gtest.h>

namespace troupe {
namespace {

// FIPS 180-4's example, by NIST.
TEST(Sha256, of_pieces_is_that_of_the_whole) {
  Sha256 digest;
  for (const std::string_view piece : {"a", "", "bc"}) {
    digest.add(std::as_bytes(std::span(piece)));
  }
  EXPECT_EQ(digest.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, of_nothing_is_known) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace troupe
