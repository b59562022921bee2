#include "runtime/channel/curve.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <zmq.h>

#include "runtime/channel/channel.hpp"

namespace troupe {

namespace {

using Z85Key = std::array<char, 41>;  // 40 characters and the terminating NUL

Error curve_error(std::string_view what) {
  return fail(ErrorCode::internal, "channel: {}: {}", what, zmq_strerror(zmq_errno()));
}

Z85Key z85(const Key& key) {
  Z85Key text;
  zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(key.data()), key.size());
  return text;
}

Result<Z85Key> public_of(const Key& secret) {
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

Key hmac(const Key& key, const std::string& text) {
  return hmac_sha256(key, std::as_bytes(std::span(text)));
}

}  // namespace

ChannelKeys ChannelKeys::derive(const Key& key, std::string_view purpose) {
  return {hmac(key, fmt::format("troupe channel listener: {}", purpose)),
          hmac(key, fmt::format("troupe channel connector: {}", purpose))};
}

Result<void> make_curve_server(void* socket, const Key& own) {
  const int yes = 1;
  if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) != 0) {
    return curve_error("cannot make a CURVE server");
  }
  // ZeroMQ consults the gate for every non-empty domain; for an empty one it might not.
  constexpr std::string_view domain = "troupe";
  if (zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, domain.data(), domain.size()) != 0) {
    return curve_error("cannot set the authentication domain");
  }
  return set_key(socket, ZMQ_CURVE_SECRETKEY, z85(own));
}

Result<void> make_curve_client(void* socket, const Key& own, const Key& listener) {
  TROUPE_TRY(const Z85Key server_public, public_of(listener));
  TROUPE_TRY(const Z85Key own_public, public_of(own));
  TROUPE_CHECK(set_key(socket, ZMQ_CURVE_SERVERKEY, server_public));
  TROUPE_CHECK(set_key(socket, ZMQ_CURVE_PUBLICKEY, own_public));
  return set_key(socket, ZMQ_CURVE_SECRETKEY, z85(own));
}

Result<std::unique_ptr<CurveGate>> CurveGate::open(void* context, const Key& connector) {
  TROUPE_TRY(const Z85Key text, public_of(connector));
  Key admitted;
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
    // The frames: version, request id, domain, address, identity, mechanism, public key.
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
    Key offered{};
    const bool complete =
        frames.size() == 7 && frames[5] == "CURVE" && frames[6].size() == offered.size();
    if (complete) std::memcpy(offered.data(), frames[6].data(), offered.size());
    const bool admit = complete && equal_in_constant_time(offered, admitted_);
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
