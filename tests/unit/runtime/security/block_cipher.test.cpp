#include "runtime/security/block_cipher.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/security/sha256.hpp"

namespace troupe {
namespace {

using Bytes = std::vector<std::byte>;

BlockSecret secret_of(std::uint8_t number) {
  BlockSecret secret;
  secret.key.fill(std::byte{number});
  secret.iv.fill(std::byte{7});
  return secret;
}

Bytes block_of(std::size_t bytes) {
  Bytes block(bytes);
  for (std::size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(i * 31);
  return block;
}

Bytes sealed_by(BlockSealer& sealer, const Bytes& block) {
  Bytes sealed(block.size() + BlockCipher::tag_bytes);
  sealer.seal(block, sealed);
  return sealed;
}

/// What the opener makes of a sealed block.
Result<Bytes> opened_by(BlockOpener& opener, Bytes sealed) {
  const std::size_t bytes = sealed.size() - BlockCipher::tag_bytes;
  const auto tag = std::span<const std::byte>(sealed).last<BlockCipher::tag_bytes>();
  TROUPE_CHECK(opener.open(std::span(sealed).first(bytes), tag));
  sealed.resize(bytes);
  return sealed;
}

TEST(BlockCipher, opens_what_was_sealed_in_its_order) {
  BlockSealer sealer(secret_of(1));
  BlockOpener opener(secret_of(1));
  for (const std::size_t bytes : {8U, 1U, 16384U, 262144U, 100003U}) {
    const Bytes block = block_of(bytes);
    const auto opened = opened_by(opener, sealed_by(sealer, block));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(*opened, block);
  }
}

TEST(BlockCipher, seals_as_the_test_cases_of_the_specification_say) {
  // McGrew and Viega, "The Galois/Counter Mode of Operation", test case 2: key and IV are 0, and
  // block 0 leaves the IV as it is.
  BlockSealer sealer(BlockSecret{});
  const Bytes sealed = sealed_by(sealer, Bytes(16));
  constexpr unsigned char expected[] = {0x03, 0x88, 0xda, 0xce, 0x60, 0xb6, 0xa3, 0x92,
                                        0xf3, 0x28, 0xc2, 0xb9, 0x71, 0xb2, 0xfe, 0x78,
                                        0xab, 0x6e, 0x47, 0xd4, 0x2c, 0xec, 0x13, 0xbd,
                                        0xf5, 0x3a, 0x67, 0xb2, 0x12, 0x57, 0xbd, 0xdf};
  EXPECT_TRUE(std::ranges::equal(sealed, std::as_bytes(std::span(expected))));
  EXPECT_NE(sealed_by(sealer, Bytes(16)), sealed) << "no nonce is used twice";
}

TEST(BlockCipher, seals_blocks_of_every_length_as_openssl_does) {
  // SHA-256 of what OpenSSL 3.0's EVP_aes_128_gcm makes of the same blocks.
  BlockSealer sealer(secret_of(1));
  Sha256 digest;
  for (std::size_t bytes = 0; bytes <= 1200; ++bytes) {
    digest.add(sealed_by(sealer, block_of(bytes)));
  }
  digest.add(sealed_by(sealer, block_of(262144)));
  EXPECT_EQ(digest.hex(), "25edf0cd46d1df354b9d3047861c84d51acb2bcdc833eaffc3c9e1506f206d7f");
}

TEST(BlockCipher, does_not_open_what_is_changed_missing_repeated_or_of_another_secret) {
  const auto refuses = [](auto&& change) {
    BlockSealer sealer(secret_of(1));
    BlockOpener opener(secret_of(1));
    std::vector<Bytes> sealed{sealed_by(sealer, block_of(100)), sealed_by(sealer, block_of(100))};
    change(sealed);
    const auto first = opened_by(opener, sealed[0]);
    const auto second = opened_by(opener, sealed[1]);
    return !first.ok() || !second.ok();
  };
  EXPECT_FALSE(refuses([](auto&) {}));
  EXPECT_TRUE(refuses([](auto& sealed) { sealed[0][50] ^= std::byte{1}; }));
  EXPECT_TRUE(refuses([](auto& sealed) { sealed[1].back() ^= std::byte{1}; }));
  EXPECT_TRUE(refuses([](auto& sealed) { sealed[0] = sealed[1]; })) << "one left out";
  EXPECT_TRUE(refuses([](auto& sealed) { sealed[1] = sealed[0]; })) << "one repeated";
  EXPECT_TRUE(refuses([](auto& sealed) { std::swap(sealed[0], sealed[1]); }));
  EXPECT_TRUE(refuses([](auto& sealed) { sealed[1].erase(sealed[1].begin() + 10); }));
  BlockSealer sealer(secret_of(1));
  BlockOpener other(secret_of(2));
  EXPECT_EQ(opened_by(other, sealed_by(sealer, block_of(100))).error().code,
            ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace troupe
