#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The TLS credentials that all processes of a job derive from its secret: one EC P-256 key by
/// HKDF ("control plane/tls"), the certificate of an authority with that key, and a leaf signed by
/// it. A process accepts peers whose leaf this authority signed, so only who knows the secret gets
/// in. (Two certificates, because OpenSSL accepts a self-signed leaf only if it is byte-identical
/// to a trusted one, and ECDSA signatures differ each time.) Validity dates are fixed: no clock is
/// trusted.
struct TlsIdentity {
  std::string key_pem;
  std::string certificate_pem;
  std::string authority_pem;
};
Result<TlsIdentity> derive_tls_identity(const JobKeys& keys);

/// The credentials as anonymous files, for libraries that take paths only. Paths are valid in this
/// process as long as the object lives; nothing is on any disk.
struct TlsFiles {
  UniqueFd key, certificate, authority;
  std::string key_path, certificate_path, authority_path;
};
Result<TlsFiles> make_tls_files(const TlsIdentity& identity);

}  // namespace troupe
