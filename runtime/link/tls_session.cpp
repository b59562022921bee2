#include "runtime/link/tls_session.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

namespace troupe {
namespace {

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using Method = std::unique_ptr<BIO_METHOD, Free<BIO_meth_free>>;
using Ssl = std::unique_ptr<SSL, Free<SSL_free>>;

constexpr const char* cipher_suite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char cipher_id[2] = {0x13, 0x01};
constexpr std::size_t read_buffer_bytes = std::size_t{64} << 10;

Error openssl_error(std::string_view what) {
  char text[256] = "unknown";
  if (const auto code = ::ERR_get_error(); code != 0) ::ERR_error_string_n(code, text, sizeof text);
  ::ERR_clear_error();
  return fail(ErrorCode::internal, "OpenSSL failed at {}: {}", what, text);
}

// OpenSSL's own socket BIO calls write(2), which raises SIGPIPE when the peer is gone.

/// What a BIO knows of its session.
struct Wire {
  int socket = -1;
  bool more_follows = false;
};

Wire& wire_of(BIO* bio) { return *static_cast<Wire*>(::BIO_get_data(bio)); }

int send_bytes(BIO* bio, const char* bytes, std::size_t count, std::size_t* sent) {
  ::BIO_clear_retry_flags(bio);
  const Wire& wire = wire_of(bio);
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (wire.more_follows ? MSG_MORE : 0);
  const ssize_t done = ::send(wire.socket, bytes, count, flags);
  if (done < 0 && (errno == EAGAIN || errno == EINTR)) ::BIO_set_retry_write(bio);
  *sent = done > 0 ? static_cast<std::size_t>(done) : 0;
  return done > 0 ? 1 : 0;
}

int receive_bytes(BIO* bio, char* room, std::size_t count, std::size_t* received) {
  ::BIO_clear_retry_flags(bio);
  const ssize_t done = ::recv(wire_of(bio).socket, room, count, MSG_DONTWAIT);
  if (done < 0 && (errno == EAGAIN || errno == EINTR)) ::BIO_set_retry_read(bio);
  if (done == 0) ::BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  *received = done > 0 ? static_cast<std::size_t>(done) : 0;
  return done > 0 ? 1 : 0;
}

long control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return ::BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

}  // namespace

struct TlsContext::State {
  Context listening, connecting;
  Method method;
};

struct TlsSession::State {
  KeyOf key_of;          ///< at the listening end
  std::string identity;  ///< one's own, or the peer's
  Key key{};             ///< at the connecting end, until the handshake has used it
  Wire wire;
  Ssl ssl;
  ~State() { ::OPENSSL_cleanse(key.data(), key.size()); }

  static State& of(const SSL* ssl) { return *static_cast<State*>(SSL_get_app_data(ssl)); }

  /// Returns a session that carries `key`; OpenSSL takes external pre-shared keys as sessions.
  static SSL_SESSION* session_of(SSL* ssl, const Key& key) {
    SSL_SESSION* session = ::SSL_SESSION_new();
    if (session == nullptr) return nullptr;
    if (::SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                      key.size()) == 1 &&
        ::SSL_SESSION_set_cipher(session, ::SSL_CIPHER_find(ssl, cipher_id)) == 1 &&
        ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
      return session;
    }
    ::SSL_SESSION_free(session);
    return nullptr;
  }

  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes,
                      SSL_SESSION** session) {
    State& state = of(ssl);
    state.identity.assign(reinterpret_cast<const char*>(identity), bytes);
    auto key = state.key_of(state.identity);
    if (!key) return 0;
    *session = session_of(ssl, *key);
    ::OPENSSL_cleanse(key->data(), key->size());
    return *session != nullptr ? 1 : 0;
  }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* bytes,
                       SSL_SESSION** session) {
    State& state = of(ssl);
    *session = session_of(ssl, state.key);
    *identity = reinterpret_cast<const unsigned char*>(state.identity.data());
    *bytes = state.identity.size();
    return *session != nullptr ? 1 : 0;
  }
};

TlsContext::TlsContext(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::create() {
  auto state = std::make_unique<State>();
  state->method.reset(::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "troupe"));
  BIO_METHOD* method = state->method.get();
  if (method == nullptr || ::BIO_meth_set_write_ex(method, send_bytes) != 1 ||
      ::BIO_meth_set_read_ex(method, receive_bytes) != 1 ||
      ::BIO_meth_set_ctrl(method, control) != 1) {
    return openssl_error("making a BIO");
  }
  state->listening.reset(::SSL_CTX_new(::TLS_server_method()));
  state->connecting.reset(::SSL_CTX_new(::TLS_client_method()));
  for (SSL_CTX* context : {state->listening.get(), state->connecting.get()}) {
    if (context == nullptr || ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        ::SSL_CTX_set_ciphersuites(context, cipher_suite) != 1 ||
        ::SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
        ::SSL_CTX_set_num_tickets(context, 0) != 1) {
      return openssl_error("setting TLS up");
    }
    ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_RELEASE_BUFFERS |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    ::SSL_CTX_set_read_ahead(context, 1);
    ::SSL_CTX_set_default_read_buffer_len(context, read_buffer_bytes);
  }
  // There is no authority, so a listener that offers a certificate instead of the key is refused.
  ::SSL_CTX_set_verify(state->connecting.get(), SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_set_psk_find_session_callback(state->listening.get(), TlsSession::State::find_key);
  ::SSL_CTX_set_psk_use_session_callback(state->connecting.get(), TlsSession::State::offer_key);
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(state)));
}

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::~TlsSession() = default;

Result<std::unique_ptr<TlsSession>> TlsSession::make(const TlsContext& context, bool listening,
                                                     int socket, std::unique_ptr<State> state) {
  const TlsContext::State& shared = *context.state_;
  state->ssl.reset(::SSL_new((listening ? shared.listening : shared.connecting).get()));
  BIO* bio = state->ssl ? ::BIO_new(shared.method.get()) : nullptr;
  if (bio == nullptr) return openssl_error("making a session");
  state->wire.socket = socket;
  ::BIO_set_data(bio, &state->wire);
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(state->ssl.get(), bio, bio);
  SSL_set_app_data(state->ssl.get(), state.get());
  if (listening) {
    ::SSL_set_accept_state(state->ssl.get());
  } else {
    ::SSL_set_connect_state(state->ssl.get());
  }
  return std::unique_ptr<TlsSession>(new TlsSession(std::move(state)));
}

Result<std::unique_ptr<TlsSession>> TlsSession::accept(const TlsContext& context, int socket,
                                                       KeyOf key_of) {
  auto state = std::make_unique<State>();
  state->key_of = std::move(key_of);
  return make(context, true, socket, std::move(state));
}

Result<std::unique_ptr<TlsSession>> TlsSession::connect(const TlsContext& context, int socket,
                                                        std::string identity, const Key& key) {
  auto state = std::make_unique<State>();
  state->identity = std::move(identity);
  state->key = key;
  return make(context, false, socket, std::move(state));
}

Error TlsSession::error_of(int outcome, std::string_view what) {
  const int why = errno;
  const int kind = ::SSL_get_error(state_->ssl.get(), outcome);
  const auto code = ::ERR_peek_error();
  if (kind == SSL_ERROR_SYSCALL && code == 0 && why != 0) {
    return fail(ErrorCode::peer_died, "the connection is over: {}", std::strerror(why));
  }
  if (kind == SSL_ERROR_ZERO_RETURN || kind == SSL_ERROR_SYSCALL ||
      ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    ::ERR_clear_error();
    return fail(ErrorCode::peer_died, "the other end closed the connection");
  }
  Error error = openssl_error(what);
  error.code =
      ::SSL_is_init_finished(state_->ssl.get()) != 0 ? ErrorCode::io : ErrorCode::permission_denied;
  return error;
}

Result<bool> TlsSession::handshake() {
  ::ERR_clear_error();
  errno = 0;
  const int outcome = ::SSL_do_handshake(state_->ssl.get());
  if (outcome == 1) {
    ::OPENSSL_cleanse(state_->key.data(), state_->key.size());
    if (::SSL_session_reused(state_->ssl.get()) == 1) return true;  // the key was used
    return fail(ErrorCode::permission_denied, "the other end did not use the key");
  }
  const int kind = ::SSL_get_error(state_->ssl.get(), outcome);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return false;
  return error_of(outcome, "the handshake");
}

Result<std::size_t> TlsSession::read(std::span<std::byte> room) {
  ::ERR_clear_error();
  errno = 0;
  std::size_t done = 0;
  const int outcome = ::SSL_read_ex(state_->ssl.get(), room.data(), room.size(), &done);
  if (outcome == 1) return done;
  const int kind = ::SSL_get_error(state_->ssl.get(), outcome);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return std::size_t{0};
  return error_of(outcome, "reading");
}

Result<std::size_t> TlsSession::write(std::span<const std::byte> bytes, bool more_follows) {
  state_->wire.more_follows = more_follows || bytes.size() > SSL3_RT_MAX_PLAIN_LENGTH;
  ::ERR_clear_error();
  errno = 0;
  std::size_t done = 0;
  const int outcome = ::SSL_write_ex(state_->ssl.get(), bytes.data(), bytes.size(), &done);
  if (outcome == 1) return done;
  const int kind = ::SSL_get_error(state_->ssl.get(), outcome);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return std::size_t{0};
  return error_of(outcome, "writing");
}

bool TlsSession::wants_write() const { return SSL_want_write(state_->ssl.get()); }

void TlsSession::say_goodbye() {
  if (::SSL_is_init_finished(state_->ssl.get()) != 0) ::SSL_shutdown(state_->ssl.get());
  ::ERR_clear_error();
}

Result<void> TlsSession::export_secret(std::string_view purpose, std::span<std::byte> secret) {
  ::ERR_clear_error();
  if (::SSL_export_keying_material(state_->ssl.get(),
                                   reinterpret_cast<unsigned char*>(secret.data()), secret.size(),
                                   purpose.data(), purpose.size(), nullptr, 0, 0) == 1) {
    return {};
  }
  return openssl_error("deriving a secret");
}

const std::string& TlsSession::identity() const { return state_->identity; }

}  // namespace troupe
