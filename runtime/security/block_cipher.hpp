#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/result.hpp"

namespace troupe {

/// The secret of one direction of one connection, of which a BlockSealer and a BlockOpener are
/// made; never of two of either.
struct BlockSecret {
  std::array<std::byte, 16> key{};
  std::array<std::byte, 12> iv{};
  ~BlockSecret();  ///< wipes it
};

/// What both ends of a stream of sealed blocks count: AES-128-GCM, the nonce of block n is the IV
/// with n added by xor, as that of a TLS 1.3 record (RFC 8446, 5.3). So a block that is changed,
/// left out, repeated or out of order does not open.
class BlockCipher {
 public:
  static constexpr std::size_t tag_bytes = 16;

 protected:
  struct Schedule;

  explicit BlockCipher(const BlockSecret& secret);
  ~BlockCipher();
  /// That of the next block.
  std::array<std::byte, 12> next_nonce();
  const Schedule& schedule() const { return *schedule_; }

 private:
  std::unique_ptr<Schedule> schedule_;
  std::array<std::byte, 12> iv_;
  std::uint64_t blocks_ = 0;
};

/// Not synchronised.
class BlockSealer : public BlockCipher {
 public:
  explicit BlockSealer(const BlockSecret& secret) : BlockCipher(secret) {}
  /// Encrypts the next block into `sealed`, which has `tag_bytes` more. At most 1 GiB.
  void seal(std::span<const std::byte> block, std::span<std::byte> sealed);
};

/// Not synchronised.
class BlockOpener : public BlockCipher {
 public:
  explicit BlockOpener(const BlockSecret& secret) : BlockCipher(secret) {}
  /// Decrypts the next block in place. After an error `block` is garbage, and so is all that
  /// follows. Errors: corrupt_data if it or its tag is not the one that was sealed.
  Result<void> open(std::span<std::byte> block, std::span<const std::byte, tag_bytes> tag);
};

}  // namespace troupe
