#include "runtime/object/data_plane.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/write_all.hpp"
#include "runtime/call/future.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

const ObjectId in_memory{1, 1}, in_a_file{1, 2}, unknown{1, 3};

/// Pieces for two connections, of which the last one is no whole block.
Bytes content() {
  Bytes bytes(8 * data_piece + 300'001);
  std::uint32_t state = 1;
  for (auto& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

UniqueFd tcp_socket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

sockaddr_in at(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Connections that say nothing.
class SilentReaders {
 public:
  SilentReaders(std::uint16_t port, std::size_t count) {
    const auto to = at(port);
    for (std::size_t i = 0; i < count; ++i) {
      sockets_.push_back(tcp_socket());
      EXPECT_EQ(::connect(sockets_.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to),
                0);
    }
  }
  void leave() { sockets_.clear(); }

 private:
  std::vector<UniqueFd> sockets_;
};

/// Somebody on the way who changes one byte of what the holder sends, on each connection.
class Changer {
 public:
  Changer(std::uint16_t port, std::size_t changed_byte) : port_(port), changed_byte_(changed_byte) {
    const auto any = at(0);
    listener_ = tcp_socket();
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { accept(); });
  }
  ~Changer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    for (auto& thread : lanes_) thread.join();
  }
  std::uint16_t port() const {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }

 private:
  void accept() {
    while (true) {
      auto reader = std::make_shared<UniqueFd>(::accept(listener_.get(), nullptr, nullptr));
      if (!*reader) return;
      auto holder = std::make_shared<UniqueFd>(tcp_socket());
      const auto to = at(port_);
      if (::connect(holder->get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
      lanes_.emplace_back([=] { pass(*reader, *holder, SIZE_MAX); });
      lanes_.emplace_back([=, this] { pass(*holder, *reader, changed_byte_); });
    }
  }
  static void pass(const UniqueFd& from, const UniqueFd& to, std::size_t changed_byte) {
    std::vector<char> room(65536);
    std::size_t passed = 0;
    for (ssize_t got = 0; (got = ::recv(from.get(), room.data(), room.size(), 0)) > 0;) {
      const auto count = static_cast<std::size_t>(got);
      if (changed_byte - passed < count) room[changed_byte - passed] ^= 1;
      passed += count;
      if (::send(to.get(), room.data(), count, MSG_NOSIGNAL) != got) break;
    }
    ::shutdown(to.get(), SHUT_RDWR);
    ::shutdown(from.get(), SHUT_RDWR);
  }

  const std::uint16_t port_;
  const std::size_t changed_byte_;
  UniqueFd listener_;
  std::vector<std::thread> lanes_;
  std::thread thread_;
};

class DataPlane : public ::testing::Test {
 protected:
  DataPlane() : bytes_(content()) {
    const auto file = std::make_shared<UniqueFd>(::memfd_create("spilled", MFD_CLOEXEC));
    EXPECT_TRUE(write_all(file->get(), bytes_, "cannot write").ok());
    CallKeys keys;
    keys.name = "holder";
    keys.listener = SecretKey(listener_);
    server_ = *DataServer::start("127.0.0.1", {}, keys,
                                 [this, file](const ObjectId& object) -> std::optional<DataSource> {
                                   if (object == in_memory)
                                     return DataSource{bytes_, nullptr, bytes_.size(), nullptr};
                                   if (object == in_a_file)
                                     return DataSource{{}, file, bytes_.size(), nullptr};
                                   return std::nullopt;
                                 });
  }
  Result<void> pull(const ObjectId& object, std::uint16_t port, Bytes& target,
                    const std::string& claimed = "reader") {
    TROUPE_TRY(const bool is_served, pull_for(object, port, target, claimed, 10s));
    if (is_served) return {};
    return fail(ErrorCode::timed_out, "the server has had no turn for it");
  }
  Result<bool> pull_for(const ObjectId& object, std::uint16_t port, Bytes& target,
                        const std::string& claimed, std::chrono::milliseconds patience) {
    return pull_object({"holder", "127.0.0.1", port}, claimed, call_pair_key(listener_, "reader"),
                       object, target, patience, is_cancelled_);
  }

  const Key listener_{std::byte{9}};
  const Bytes bytes_;
  std::atomic<bool> is_cancelled_ = false;
  std::unique_ptr<DataServer> server_;
};

TEST_F(DataPlane, gives_the_same_bytes_from_memory_and_from_files) {
  for (const auto& object : {in_memory, in_a_file}) {
    Bytes target(bytes_.size());
    const auto pulled = pull(object, server_->port(), target);
    ASSERT_TRUE(pulled.ok()) << pulled.error().message;
    EXPECT_TRUE(target == bytes_);
  }
}

TEST_F(DataPlane, gives_the_bytes_by_the_connections_that_a_busy_holder_takes) {
  const SilentReaders others(server_->port(), 63);  // all but one
  Bytes target(bytes_.size());
  const auto pulled = pull(in_memory, server_->port(), target);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_TRUE(target == bytes_);
}

TEST_F(DataPlane, says_that_an_object_is_not_there_and_refuses_who_does_not_know_the_key) {
  Bytes target(100);
  EXPECT_EQ(pull(unknown, server_->port(), target).error().code, ErrorCode::not_found);
  EXPECT_FALSE(pull(in_memory, server_->port(), target, "somebody else").ok());
}

TEST_F(DataPlane, refuses_bytes_that_were_changed_on_the_way) {
  const Changer changer(server_->port(), 1'000'000);
  Bytes target(bytes_.size());
  EXPECT_EQ(pull(in_memory, changer.port(), target).error().code, ErrorCode::corrupt_data);
}

TEST_F(DataPlane, lets_readers_wait_for_their_turn_when_all_connections_are_taken) {
  SilentReaders others(server_->port(), 64);
  Bytes target(bytes_.size());
  const Promise<bool> pulled;
  std::thread reader([&] {
    auto done = pull(in_memory, server_->port(), target);
    EXPECT_TRUE(done.ok()) << done.error().message;
    pulled.complete(done.ok());
  });
  Bytes none(bytes_.size());
  EXPECT_FALSE(*pull_for(in_memory, server_->port(), none, "reader", 300ms));
  EXPECT_FALSE(pulled.future().ready());
  others.leave();
  reader.join();
  EXPECT_TRUE(target == bytes_);
}

TEST_F(DataPlane, does_with_the_connections_that_there_are) {
  const SilentReaders others(server_->port(), 63);
  Bytes target(bytes_.size());
  EXPECT_FALSE(pull(unknown, server_->port(), target).ok());  // the others have their connections
  const auto pulled = pull(in_memory, server_->port(), target);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_TRUE(target == bytes_);
}

TEST_F(DataPlane, works_over_somebody_who_changes_nothing) {
  const Changer passer(server_->port(), SIZE_MAX);
  Bytes target(bytes_.size());
  const auto pulled = pull(in_memory, passer.port(), target);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_TRUE(target == bytes_);
}

}  // namespace
}  // namespace troupe
