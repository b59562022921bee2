#include "runtime/channel/curve.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <zmq.h>

namespace troupe {

namespace {

constexpr std::size_t key_bytes = 32;
using Z85Key = std::array<char, 41>;  // 40 characters and the end

Error curve_error(std::string_view what) {
  return fail(ErrorCode::internal, "channel: {}: {}", what, zmq_strerror(zmq_errno()));
}

Z85Key z85(const ChannelKeys::Secret& key) {
  Z85Key text;
  zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(key.data()), key.size());
  return text;
}

Result<Z85Key> public_of(const ChannelKeys::Secret& secret) {
  const Z85Key text = z85(secret);
  Z85Key result;
  if (zmq_curve_public(result.data(), text.data()) != 0) {
    return curve_error("no public key (is ZeroMQ built with CURVE?)");
  }
  return result;
}

Result<void> set_key(void* socket, int option, const Z85Key& key) {
  if (zmq_setsockopt(socket, option, key.data(), key.size()) == 0) return {};
  return curve_error("cannot set a key");
}

ChannelKeys::Secret hmac(std::span<const std::byte, 32> key, const std::string& text) {
  ChannelKeys::Secret result;
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(result.data()), &bytes);
  return result;
}

}  // namespace

ChannelKeys ChannelKeys::derive(std::span<const std::byte, 32> job_key, std::string_view purpose) {
  return {hmac(job_key, fmt::format("troupe channel listener: {}", purpose)),
          hmac(job_key, fmt::format("troupe channel connector: {}", purpose))};
}

Result<void> make_curve_server(void* socket, const ChannelKeys::Secret& own) {
  const int yes = 1;
  if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) != 0) {
    return curve_error("cannot make a CURVE server");
  }
  // A domain makes ZeroMQ ask the gate even where it would not for an empty one.
  constexpr std::string_view domain = "troupe";
  if (zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, domain.data(), domain.size()) != 0) {
    return curve_error("cannot set the authentication domain");
  }
  return set_key(socket, ZMQ_CURVE_SECRETKEY, z85(own));
}

Result<void> make_curve_client(void* socket, const ChannelKeys::Secret& own,
                               const ChannelKeys::Secret& listener) {
  TROUPE_TRY(const Z85Key server_public, public_of(listener));
  TROUPE_TRY(const Z85Key own_public, public_of(own));
  TROUPE_CHECK(set_key(socket, ZMQ_CURVE_SERVERKEY, server_public));
  TROUPE_CHECK(set_key(socket, ZMQ_CURVE_PUBLICKEY, own_public));
  return set_key(socket, ZMQ_CURVE_SECRETKEY, z85(own));
}

Result<std::unique_ptr<CurveGate>> CurveGate::open(void* context,
                                                   const ChannelKeys::Secret& connector) {
  TROUPE_TRY(const Z85Key text, public_of(connector));
  PublicKey admitted;
  zmq_z85_decode(reinterpret_cast<std::uint8_t*>(admitted.data()), text.data());
  void* socket = zmq_socket(context, ZMQ_REP);
  if (socket == nullptr) return curve_error("cannot make a socket");
  std::unique_ptr<CurveGate> gate(new CurveGate(socket, admitted));
  const int none = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
  if (zmq_bind(socket, "inproc://zeromq.zap.01") != 0) {
    return curve_error("cannot answer authentication requests");
  }
  return gate;
}

CurveGate::~CurveGate() { zmq_close(socket_); }

void CurveGate::answer() {
  while (true) {
    // Version, request id, domain, address, identity, mechanism, public key.
    std::vector<std::string> frames;
    int more = 1;
    while (more != 0) {
      std::array<char, 256> buffer;
      const int size = zmq_recv(socket_, buffer.data(), buffer.size(), ZMQ_DONTWAIT);
      if (size < 0) return;
      frames.emplace_back(buffer.data(), std::min(static_cast<std::size_t>(size), buffer.size()));
      std::size_t bytes = sizeof more;
      zmq_getsockopt(socket_, ZMQ_RCVMORE, &more, &bytes);
    }
    const bool admit = frames.size() == 7 && frames[5] == "CURVE" &&
                       frames[6].size() == key_bytes &&
                       CRYPTO_memcmp(frames[6].data(), admitted_.data(), key_bytes) == 0;
    const std::array<std::string, 6> reply = {"1.0",
                                              frames.size() > 1 ? frames[1] : std::string(),
                                              admit ? "200" : "400",
                                              admit ? "OK" : "another key",
                                              "",
                                              ""};
    for (std::size_t i = 0; i < reply.size(); ++i) {
      const int flags = ZMQ_DONTWAIT | (i + 1 < reply.size() ? ZMQ_SNDMORE : 0);
      if (zmq_send(socket_, reply[i].data(), reply[i].size(), flags) < 0) return;
    }
  }
}

}  // namespace troupe
