#include "runtime/security/block_cipher.hpp"

#include <algorithm>

#include <openssl/err.h>
#include <openssl/evp.h>

#include "runtime/security/job_secret.hpp"

namespace troupe {
namespace {

const unsigned char* input(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* output(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace

BlockSecret::~BlockSecret() {
  wipe(key);
  wipe(iv);
}

void BlockCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  ::EVP_CIPHER_CTX_free(context);
}

BlockCipher::BlockCipher(const BlockSecret& secret, bool seals)
    : context_(::EVP_CIPHER_CTX_new()), iv_(secret.iv) {
  const bool is_ready =
      context_ && ::EVP_CipherInit_ex(context_.get(), ::EVP_aes_128_gcm(), nullptr,
                                      input(secret.key), nullptr, seals ? 1 : 0) == 1;
  if (!is_ready) context_.reset();
}

bool BlockCipher::begin() {
  if (!context_) return false;
  auto nonce = iv_;
  for (std::size_t i = 0; i < sizeof blocks_; ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(blocks_ >> (8 * i));
  }
  ++blocks_;
  return ::EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, input(nonce), -1) == 1;
}

Result<void> BlockSealer::seal(std::span<const std::byte> block, std::span<std::byte> sealed) {
  int count = 0;
  const auto tag = sealed.subspan(block.size(), tag_bytes);
  if (begin() &&
      ::EVP_EncryptUpdate(context(), output(sealed), &count, input(block),
                          static_cast<int>(block.size())) == 1 &&
      ::EVP_EncryptFinal_ex(context(), output(tag), &count) == 1 &&
      ::EVP_CIPHER_CTX_ctrl(context(), EVP_CTRL_AEAD_GET_TAG, tag_bytes, output(tag)) == 1) {
    return {};
  }
  ::ERR_clear_error();
  return fail(ErrorCode::internal, "a block cannot be encrypted");
}

Result<void> BlockOpener::open(std::span<std::byte> block,
                               std::span<const std::byte, tag_bytes> tag) {
  int count = 0;
  std::array<std::byte, tag_bytes> expected;
  std::copy(tag.begin(), tag.end(), expected.begin());
  if (begin() &&
      ::EVP_DecryptUpdate(context(), output(block), &count, input(block),
                          static_cast<int>(block.size())) == 1 &&
      ::EVP_CIPHER_CTX_ctrl(context(), EVP_CTRL_AEAD_SET_TAG, tag_bytes, output(expected)) == 1 &&
      ::EVP_DecryptFinal_ex(context(), output(expected), &count) == 1) {
    return {};
  }
  ::ERR_clear_error();
  return fail(ErrorCode::corrupt_data, "a block is not the one that was sent");
}

}  // namespace troupe
