#include "runtime/security/handshake.hpp"

#include <algorithm>
#include <cstring>

#include <link.h>
#include <sys/stat.h>

#include "runtime/security/plane_keys.hpp"

namespace troupe {
namespace {

enum class Kind : std::uint8_t { greeting = 1, proof, welcome, refusal };

constexpr char magic[8] = {'t', 'r', 'o', 'u', 'p', 'e', '/', 'c'};

/// Sent in its memory layout; both ends have one architecture (little endian).
struct Greeting {
  char mark[8];
  std::uint32_t version;
  std::uint32_t reserved;
  Key build;
  Key nonce;
  char name[112];  ///< the client's, zeros behind it; the server's is left empty
};
static_assert(sizeof(Greeting) == 192);

std::vector<std::byte> message_of(Kind kind, std::span<const std::byte> a,
                                  std::span<const std::byte> b = {}) {
  std::vector<std::byte> message(1 + a.size() + b.size(), static_cast<std::byte>(kind));
  std::copy(a.begin(), a.end(), message.begin() + 1);
  std::copy(b.begin(), b.end(), message.end() - static_cast<std::ptrdiff_t>(b.size()));
  return message;
}

}  // namespace

Key this_build() {
  std::vector<std::byte> note;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as integers
          const auto* at = reinterpret_cast<const std::byte*>(info->dlpi_addr + segment.p_vaddr);
          const auto* end = at + segment.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) header;
            std::memcpy(&header, at, sizeof header);
            const auto* name = at + sizeof header;
            const auto* text = name + ((header.n_namesz + 3) & ~3U);
            if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
                std::memcmp(name, "GNU", 4) == 0) {
              static_cast<std::vector<std::byte>*>(out)->assign(text, text + header.n_descsz);
              return 1;
            }
            at = text + ((header.n_descsz + 3) & ~3U);
          }
        }
        return 1;  // the program itself comes first; libraries do not matter
      },
      &note);
  if (note.empty()) {
    struct stat file{};
    ::stat("/proc/self/exe", &file);
    note.resize(sizeof file.st_size + sizeof file.st_mtim);
    std::memcpy(note.data(), &file.st_size, sizeof file.st_size);
    std::memcpy(note.data() + sizeof file.st_size, &file.st_mtim, sizeof file.st_mtim);
  }
  return hmac_sha256(Key{}, note);
}

Result<Handshake> Handshake::as_client(std::string_view name, const Key& key,
                                       const Identity& self) {
  return create(State::expects_server_greeting, name, key, self);
}

Result<Handshake> Handshake::as_server(const Key& key, const Identity& self) {
  return create(State::expects_client_greeting, "", key, self);
}

Result<Handshake> Handshake::create(State first, std::string_view name, const Key& key,
                                    const Identity& self) {
  Handshake handshake;
  handshake.key_ = key;
  handshake.self_ = self;
  Greeting greeting{};
  if (name.size() >= sizeof greeting.name) {
    return fail(ErrorCode::invalid_argument, "the call plane's name '{}' is too long", name);
  }
  std::ranges::copy(name, greeting.name);
  std::memcpy(greeting.mark, magic, sizeof magic);
  greeting.version = self.version;
  greeting.build = self.build;
  TROUPE_CHECK(random_bytes(greeting.nonce));
  const auto bytes = std::as_bytes(std::span(&greeting, 1));
  auto& own = first == State::expects_server_greeting ? handshake.client_greeting_
                                                      : handshake.server_greeting_;
  own.assign(bytes.begin(), bytes.end());
  handshake.state_ = first;
  return handshake;
}

std::vector<std::byte> Handshake::first_message() const {
  if (state_ != State::expects_server_greeting) return {};
  return message_of(Kind::greeting, client_greeting_);
}

Key Handshake::proof(std::string_view role) const {
  const auto name = std::as_bytes(std::span(role));
  std::vector<std::byte> text(name.begin(), name.end());
  text.insert(text.end(), client_greeting_.begin(), client_greeting_.end());
  text.insert(text.end(), server_greeting_.begin(), server_greeting_.end());
  return hmac_sha256(key_, text);
}

Handshake::Reply Handshake::refuse(ErrorCode code, std::string why, bool tell_peer) {
  state_ = State::over;
  Reply reply;
  reply.refused = true;
  if (tell_peer) reply.message = message_of(Kind::refusal, std::as_bytes(std::span(why)));
  reply.refusal = {code, std::move(why)};
  return reply;
}

Handshake::Reply Handshake::check_identity(std::span<const std::byte> bytes,
                                           const char* peer_name) {
  Greeting greeting{};
  std::memcpy(&greeting, bytes.data(), sizeof greeting);
  if (std::memcmp(greeting.mark, magic, sizeof magic) != 0) {
    return refuse(ErrorCode::permission_denied, "the peer does not speak this protocol", false);
  }
  if (greeting.version != self_.version) {
    return refuse(ErrorCode::unsupported,
                  fmt::format("the {} speaks protocol version {}, this process {}: start all "
                              "processes of a job from one installation",
                              peer_name, greeting.version, self_.version),
                  true);
  }
  if (greeting.build != self_.build) {
    return refuse(ErrorCode::unsupported,
                  fmt::format("the {} is build {}, this process {}: start all processes of a job "
                              "from one build",
                              peer_name, to_hex(std::span(greeting.build).first(6)),
                              to_hex(std::span(self_.build).first(6))),
                  true);
  }
  return {};
}

Handshake::Reply Handshake::on_message(std::span<const std::byte> message) {
  const char* peer_name =
      state_ == State::expects_server_greeting || state_ == State::expects_welcome ? "server"
                                                                                   : "client";
  if (message.empty())
    return refuse(ErrorCode::permission_denied, "empty handshake message", false);
  const auto kind = static_cast<Kind>(message[0]);
  const auto body = message.subspan(1);
  if (kind == Kind::refusal && state_ != State::over) {
    const std::string text(reinterpret_cast<const char*>(body.data()),
                           std::min<std::size_t>(body.size(), 300));
    return refuse(ErrorCode::permission_denied, "the peer refused: " + text, false);
  }
  Key mac{};
  if (state_ == State::expects_client_greeting && kind == Kind::greeting &&
      body.size() == sizeof(Greeting)) {
    client_greeting_.assign(body.begin(), body.end());
    if (auto refusal = check_identity(body, peer_name); refusal.refused) return refusal;
    Greeting greeting{};
    std::memcpy(&greeting, body.data(), sizeof greeting);
    key_ = call_pair_key(
        key_, {greeting.name, static_cast<std::size_t>(std::ranges::find(greeting.name, '\0') -
                                                       std::ranges::begin(greeting.name))});
    state_ = State::expects_proof;
    return {message_of(Kind::greeting, server_greeting_, proof("server")), false, {}, false};
  }
  if (state_ == State::expects_server_greeting && kind == Kind::greeting &&
      body.size() == sizeof(Greeting) + sizeof mac) {
    server_greeting_.assign(body.begin(), body.begin() + sizeof(Greeting));
    if (auto refusal = check_identity(body, peer_name); refusal.refused) return refusal;
    std::memcpy(mac.data(), body.data() + sizeof(Greeting), sizeof mac);
    if (!equal_in_constant_time(mac, proof("server"))) {
      return refuse(ErrorCode::permission_denied, "the server does not know the key of this pair",
                    true);
    }
    state_ = State::expects_welcome;
    return {message_of(Kind::proof, proof("client")), false, {}, false};
  }
  if (state_ == State::expects_proof && kind == Kind::proof && body.size() == sizeof mac) {
    std::memcpy(mac.data(), body.data(), sizeof mac);
    if (!equal_in_constant_time(mac, proof("client"))) {
      return refuse(ErrorCode::permission_denied, "the client does not know the key of this pair",
                    true);
    }
    state_ = State::over;
    return {message_of(Kind::welcome, {}), true, {}, false};
  }
  if (state_ == State::expects_welcome && kind == Kind::welcome && body.empty()) {
    state_ = State::over;
    return {{}, true, {}, false};
  }
  return refuse(ErrorCode::permission_denied, "unexpected handshake message", false);
}

}  // namespace troupe
