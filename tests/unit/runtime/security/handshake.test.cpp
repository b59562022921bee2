#include "runtime/security/handshake.hpp"

#include <random>

#include <gtest/gtest.h>

#include "runtime/security/plane_keys.hpp"

namespace troupe {

struct Outcome {
  bool client_done = false, server_done = false;
  std::string client_refusal, server_refusal;
};

/// Exchanges messages until neither has anything to send.
Outcome talk(Handshake client, Handshake server) {
  Outcome outcome;
  auto to_server = client.first_message();
  for (int turn = 0; turn < 4 && !to_server.empty(); ++turn) {
    const auto answer = server.on_message(to_server);
    outcome.server_done |= answer.done;
    if (answer.refused) outcome.server_refusal = answer.refusal.message;
    if (answer.message.empty()) break;
    const auto reply = client.on_message(answer.message);
    outcome.client_done |= reply.done;
    if (reply.refused) outcome.client_refusal = reply.refusal.message;
    to_server = reply.message;
  }
  return outcome;
}

const Key server_key{std::byte{1}};

/// The client named `name`, with the key of "a" and the server.
Handshake client_of(const Identity& identity = {}, const std::string& name = "a") {
  return *Handshake::as_client(name, call_pair_key(server_key, "a"), identity);
}

Handshake server_of(const Identity& identity = {}) {
  return *Handshake::as_server(server_key, identity);
}

TEST(Handshake, lets_two_processes_of_one_job_talk) {
  const auto outcome = talk(client_of(), server_of());
  EXPECT_TRUE(outcome.client_done) << outcome.client_refusal;
  EXPECT_TRUE(outcome.server_done) << outcome.server_refusal;
}

TEST(Handshake, refuses_a_peer_without_the_key_of_the_pair_on_either_side) {
  const auto outcome = talk(*Handshake::as_client("a", Key{std::byte{2}}, {}), server_of());
  EXPECT_FALSE(outcome.client_done);
  EXPECT_FALSE(outcome.server_done);
  EXPECT_NE(outcome.client_refusal.find("does not know the key of this pair"), std::string::npos)
      << outcome.client_refusal;
}

TEST(Handshake, refuses_a_process_of_the_job_under_the_name_of_another) {
  auto server = server_of();
  const auto greeting = server.on_message(client_of({}, "b").first_message());
  ASSERT_FALSE(greeting.refused);
  // The impostor goes on although the server's proof tells it that it has the wrong key.
  std::vector<std::byte> proof(33, std::byte{2});
  EXPECT_EQ(server.on_message(proof).refusal.code, ErrorCode::permission_denied);
  const auto outcome = talk(client_of({}, "b"), server_of());
  EXPECT_FALSE(outcome.client_done);
  EXPECT_FALSE(outcome.server_done);
}

TEST(Handshake, takes_names_that_a_unix_socket_can_have) {
  const Key key{};
  EXPECT_TRUE(Handshake::as_client(std::string(107, 'x'), key, {}).ok());
  EXPECT_FALSE(Handshake::as_client(std::string(112, 'x'), key, {}).ok());
}

TEST(Handshake, refuses_a_client_that_forges_its_proof) {
  auto server = server_of();
  (void)server.on_message(client_of().first_message());
  std::vector<std::byte> forged(33, std::byte{2});  // kind "proof" and 32 bytes
  const auto reply = server.on_message(forged);
  EXPECT_TRUE(reply.refused);
  EXPECT_FALSE(reply.done);
  EXPECT_EQ(reply.refusal.code, ErrorCode::permission_denied);
}

TEST(Handshake, refuses_other_builds_and_versions_and_says_both) {
  const auto builds = talk(client_of({protocol_version, Key{std::byte{0xab}}}), server_of());
  EXPECT_FALSE(builds.server_done);
  EXPECT_NE(builds.server_refusal.find("ab00"), std::string::npos) << builds.server_refusal;
  EXPECT_NE(builds.client_refusal.find("one build"), std::string::npos) << builds.client_refusal;
  const auto versions = talk(client_of({protocol_version + 1, {}}), server_of());
  EXPECT_NE(versions.client_refusal.find(fmt::format("protocol version {}, this process {}",
                                                     protocol_version + 1, protocol_version)),
            std::string::npos)
      << versions.client_refusal;
}

TEST(Handshake, refuses_random_messages_in_every_state) {
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    auto server = server_of();
    if (seed % 2 == 1) (void)server.on_message(client_of().first_message());
    std::vector<std::byte> message(random() % 300);
    for (auto& byte : message) byte = static_cast<std::byte>(random());
    if (!message.empty()) message[0] = static_cast<std::byte>(random() % 6);
    const auto reply = server.on_message(message);
    ASSERT_TRUE(reply.refused) << "seed " << seed;
    ASSERT_FALSE(reply.done) << "seed " << seed;
  }
}

TEST(JobKeys, derive_the_same_keys_from_the_same_secret_and_purpose_only) {
  const auto keys = *JobKeys::generate();
  const auto copy = *JobKeys::from_secret(keys.secret());
  EXPECT_EQ(keys.derive("a"), copy.derive("a"));
  EXPECT_NE(keys.derive("a"), keys.derive("b"));
  EXPECT_NE(keys.derive("a"), JobKeys::generate()->derive("a"));
  EXPECT_FALSE(JobKeys::from_secret(keys.secret().first(31)).ok());
}

TEST(JobKeys, follow_rfc_5869_without_salt) {
  // RFC 5869 A.3 has a 22-byte secret; ours has 32, so the reference is computed by its definition.
  Key input{};
  input.fill(std::byte{0x0b});
  const auto keys = *JobKeys::from_secret(input);
  const Key prk = hmac_sha256(Key{}, input);
  const std::array<std::byte, 2> info{std::byte{'x'}, std::byte{1}};
  EXPECT_EQ(to_hex(keys.derive("x")), to_hex(hmac_sha256(prk, info)));
}

}  // namespace troupe
