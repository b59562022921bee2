#pragma once

#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace troupe {

/// The SHA-256 of bytes that come in pieces (FIPS 180-4).
class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  /// Returns the digest in lower-case hexadecimal. Call once, last.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace troupe
