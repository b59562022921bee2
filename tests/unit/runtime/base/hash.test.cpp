#include "runtime/base/hash.hpp"

#include <string>

#include <gtest/gtest.h>

namespace troupe {
namespace {

// Recorded from python-xxhash 3: xxhash.xxh3_128_intdigest(text, seed).
TEST(Hash128, is_xxh3_of_128_bits_with_the_high_half_first) {
  EXPECT_EQ(hash_128(""), (Hash128{0x99aa06d3014798d8ULL, 0x6001c324468d497fULL}));
  EXPECT_EQ(hash_128("request-1", 7), (Hash128{0x2bfdd6a899c16090ULL, 0x90d50a723bb7008aULL}));
  EXPECT_EQ(hash_128(std::string(1000, 'a'), 5),
            (Hash128{0x6ffaca329bff4082ULL, 0xca5532f120a62434ULL}));
}

TEST(Hash128, is_written_with_32_digits_the_high_half_first) {
  EXPECT_EQ(to_hex(hash_128("request-1", 7)), "2bfdd6a899c1609090d50a723bb7008a");
  EXPECT_EQ(to_hex(Hash128{1, 0xab}), "000000000000000100000000000000ab");
}

TEST(Hash128, is_the_same_for_text_that_comes_in_pieces) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7);
  Hasher128 pieces;
  EXPECT_EQ(pieces.hash(), hash_128(""));
  for (std::size_t begin = 0, length = 0; begin < text.size(); begin += length) {
    length = begin % 97 + 1;
    pieces.add(std::string_view(text).substr(begin, length));
  }
  EXPECT_EQ(pieces.hash(), hash_128(text));
}

}  // namespace
}  // namespace troupe
