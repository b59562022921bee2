#include "runtime/security/job_secret.hpp"

#include <cerrno>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

namespace troupe {

Result<void> random_bytes(std::span<std::byte> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got = ::getrandom(out.data() + filled, out.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail_errno(errno, "cannot draw random bytes from the kernel");
    filled += static_cast<std::size_t>(got);
  }
  return {};
}

Key hmac_sha256(const Key& key, std::span<const std::byte> message) {
  Key mac{};
  unsigned length = 0;
  ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(message.data()), message.size(),
         reinterpret_cast<unsigned char*>(mac.data()), &length);
  return mac;
}

bool equal_in_constant_time(const Key& a, const Key& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

Result<JobKeys> JobKeys::generate() {
  JobKeys keys;
  TROUPE_CHECK(random_bytes(keys.secret_));
  return keys;
}

Result<JobKeys> JobKeys::from_secret(std::span<const std::byte> secret) {
  JobKeys keys;
  if (secret.size() != keys.secret_.size()) {
    return fail(ErrorCode::invalid_argument, "a job secret has {} bytes, this one {}",
                keys.secret_.size(), secret.size());
  }
  std::copy(secret.begin(), secret.end(), keys.secret_.begin());
  return keys;
}

void wipe(std::span<std::byte> bytes) { ::OPENSSL_cleanse(bytes.data(), bytes.size()); }

JobKeys::~JobKeys() { wipe(secret_); }

Key JobKeys::derive(std::string_view purpose) const {
  // HKDF with an empty salt; 32 bytes of output are exactly one block of the expansion.
  Key extracted = hmac_sha256(Key{}, secret_);
  std::vector<std::byte> info(purpose.size() + 1);
  for (std::size_t i = 0; i < purpose.size(); ++i) info[i] = static_cast<std::byte>(purpose[i]);
  info.back() = std::byte{1};
  const Key derived = hmac_sha256(extracted, info);
  wipe(extracted);
  return derived;
}

}  // namespace troupe
