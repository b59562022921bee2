#include "runtime/security/tls_identity.hpp"

#include <memory>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <unistd.h>

namespace troupe {
namespace {

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};
using Number = std::unique_ptr<BIGNUM, Free<BN_clear_free>>;
using Group = std::unique_ptr<EC_GROUP, Free<EC_GROUP_free>>;
using Point = std::unique_ptr<EC_POINT, Free<EC_POINT_free>>;
using ParamBuild = std::unique_ptr<OSSL_PARAM_BLD, Free<OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, Free<OSSL_PARAM_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Free<EVP_PKEY_CTX_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Memory = std::unique_ptr<BIO, Free<BIO_free_all>>;

Error openssl_error(const char* what) {
  return fail(ErrorCode::internal, "OpenSSL failed at {}", what);
}

/// A scalar in [1, order): the first derived value that is in range (nearly always the first).
Result<Number> derive_scalar(const JobKeys& keys, const EC_GROUP* group) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    const Key bytes = keys.derive(fmt::format("control plane/tls/{}", attempt));
    Number scalar(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                            static_cast<int>(bytes.size()), nullptr));
    if (scalar && !BN_is_zero(scalar.get()) &&
        BN_cmp(scalar.get(), EC_GROUP_get0_order(group)) < 0) {
      return scalar;
    }
  }
  return openssl_error("deriving a P-256 key");
}

Result<PrivateKey> derive_key(const JobKeys& keys) {
  Group group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  if (!group) return openssl_error("P-256");
  TROUPE_TRY(Number scalar, derive_scalar(keys, group.get()));
  Point point(EC_POINT_new(group.get()));
  unsigned char encoded[65];
  if (!point ||
      EC_POINT_mul(group.get(), point.get(), scalar.get(), nullptr, nullptr, nullptr) != 1 ||
      EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, encoded,
                         sizeof encoded, nullptr) != sizeof encoded) {
    return openssl_error("computing the public key");
  }
  ParamBuild build(OSSL_PARAM_BLD_new());
  if (!build ||
      OSSL_PARAM_BLD_push_utf8_string(build.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_BN(build.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar.get()) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(build.get(), OSSL_PKEY_PARAM_PUB_KEY, encoded,
                                       sizeof encoded) != 1) {
    return openssl_error("describing the key");
  }
  Params params(OSSL_PARAM_BLD_to_param(build.get()));
  KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, params.get()) != 1) {
    return openssl_error("making the key");
  }
  return PrivateKey(key);
}

void set_name(X509_NAME* name, const char* text) {
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text),
                             -1, -1, 0);
}

Result<Certificate> make_certificate(EVP_PKEY* key, bool authority) {
  Certificate certificate(X509_new());
  if (!certificate) return openssl_error("X509_new");
  X509* x = certificate.get();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), authority ? 1 : 2);
  ASN1_TIME_set_string(X509_getm_notBefore(x), "20000101000000Z");
  ASN1_TIME_set_string(X509_getm_notAfter(x), "21000101000000Z");
  set_name(X509_get_issuer_name(x), "troupe job authority");
  set_name(X509_get_subject_name(x), authority ? "troupe job authority" : "troupe job process");
  X509_set_pubkey(x, key);
  if (authority) {
    Extension constraint(
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"));
    if (!constraint || X509_add_ext(x, constraint.get(), -1) != 1) return openssl_error("CA:TRUE");
  }
  if (X509_sign(x, key, EVP_sha256()) == 0) return openssl_error("signing the certificate");
  return certificate;
}

template <class Write>
Result<std::string> to_pem(Write&& write) {
  Memory memory(BIO_new(BIO_s_mem()));
  if (!memory || write(memory.get()) != 1) return openssl_error("writing PEM");
  char* text = nullptr;
  const long length = BIO_get_mem_data(memory.get(), &text);
  return std::string(text, static_cast<std::size_t>(length));
}

Result<UniqueFd> memory_file(const std::string& text, std::string& path) {
  UniqueFd fd(::memfd_create("troupe-tls", MFD_CLOEXEC));
  if (!fd) return fail_errno(errno, "cannot make a memfd");
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail_errno(errno, "cannot write a memfd");
  }
  path = fmt::format("/proc/self/fd/{}", fd.get());
  return fd;
}

}  // namespace

Result<TlsIdentity> derive_tls_identity(const JobKeys& keys) {
  TROUPE_TRY(PrivateKey key, derive_key(keys));
  TROUPE_TRY(Certificate authority, make_certificate(key.get(), true));
  TROUPE_TRY(Certificate leaf, make_certificate(key.get(), false));
  TlsIdentity identity;
  TROUPE_TRY(identity.key_pem, to_pem([&](BIO* out) {
               return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr,
                                               nullptr);
             }));
  TROUPE_TRY(identity.certificate_pem,
             to_pem([&](BIO* out) { return PEM_write_bio_X509(out, leaf.get()); }));
  TROUPE_TRY(identity.authority_pem,
             to_pem([&](BIO* out) { return PEM_write_bio_X509(out, authority.get()); }));
  return identity;
}

Result<TlsFiles> make_tls_files(const TlsIdentity& identity) {
  TlsFiles files;
  TROUPE_TRY(files.key, memory_file(identity.key_pem, files.key_path));
  TROUPE_TRY(files.certificate, memory_file(identity.certificate_pem, files.certificate_path));
  TROUPE_TRY(files.authority, memory_file(identity.authority_pem, files.authority_path));
  return files;
}

}  // namespace troupe
