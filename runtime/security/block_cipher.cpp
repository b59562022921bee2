#include "runtime/security/block_cipher.hpp"

#include <stdexcept>

#include <fmt/format.h>
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include "runtime/security/job_secret.hpp"

namespace troupe {
namespace {

const std::uint8_t* input(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

std::uint8_t* output(std::span<std::byte> bytes) {
  return reinterpret_cast<std::uint8_t*>(bytes.data());
}

/// The library's functions for this processor. Never freed: threads may need it until the end.
IMB_MGR& library() {
  static IMB_MGR* const manager = [] {
    IMB_MGR* const made = ::alloc_mb_mgr(0);
    if (made == nullptr) throw std::bad_alloc();
    ::init_mb_mgr_auto(made, nullptr);
    if (const int error = ::imb_get_errno(made); error != 0) {
      throw std::runtime_error(fmt::format("no AES-GCM: {}", ::imb_get_strerror(error)));
    }
    return made;
  }();
  return *manager;
}

}  // namespace

BlockSecret::~BlockSecret() {
  wipe(key);
  wipe(iv);
}

struct BlockCipher::Schedule {
  gcm_key_data key;

  explicit Schedule(const BlockSecret& secret) {
    IMB_AES128_GCM_PRE(&library(), secret.key.data(), &key);
  }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  ~Schedule() { wipe(std::as_writable_bytes(std::span(&key, 1))); }
};

BlockCipher::BlockCipher(const BlockSecret& secret)
    : schedule_(std::make_unique<Schedule>(secret)), iv_(secret.iv) {}

BlockCipher::~BlockCipher() = default;

std::array<std::byte, 12> BlockCipher::next_nonce() {
  auto nonce = iv_;
  for (std::size_t i = 0; i < sizeof blocks_; ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(blocks_ >> (8 * i));
  }
  ++blocks_;
  return nonce;
}

void BlockSealer::seal(std::span<const std::byte> block, std::span<std::byte> sealed) {
  const auto nonce = next_nonce();
  gcm_context_data context;
  IMB_AES128_GCM_ENC(&library(), &schedule().key, &context, output(sealed), input(block),
                     block.size(), input(nonce), nullptr, 0, output(sealed.subspan(block.size())),
                     tag_bytes);
}

Result<void> BlockOpener::open(std::span<std::byte> block,
                               std::span<const std::byte, tag_bytes> tag) {
  const auto nonce = next_nonce();
  gcm_context_data context;
  std::array<std::byte, tag_bytes> expected;
  IMB_AES128_GCM_DEC(&library(), &schedule().key, &context, output(block), input(block),
                     block.size(), input(nonce), nullptr, 0, output(expected), tag_bytes);
  if (::CRYPTO_memcmp(expected.data(), tag.data(), tag_bytes) == 0) return {};
  return fail(ErrorCode::corrupt_data, "a block is not the one that was sent");
}

}  // namespace troupe
