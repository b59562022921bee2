#include "runtime/node/node_ticket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

NodeTicket some_ticket() {
  NodeTicket ticket;
  ticket.node = "gpu-7.rack_2";
  ticket.host = "10.0.0.254";
  ticket.port = 40123;
  for (std::size_t i = 0; i < ticket.key.bytes.size(); ++i)
    ticket.key.bytes[i] = std::byte(250 + i);
  return ticket;
}

TEST(NodeTicket, is_read_as_it_was_written) {
  const NodeTicket ticket = some_ticket();
  const auto read = NodeTicket::parse(ticket.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->node, ticket.node);
  EXPECT_EQ(read->host, ticket.host);
  EXPECT_EQ(read->port, ticket.port);
  EXPECT_EQ(read->key.bytes, ticket.key.bytes);
}

TEST(NodeTicket, what_is_none_is_refused_without_being_repeated) {
  const std::string text = some_ticket().text();
  const std::string key = text.substr(text.rfind(' ') + 1, 64);
  std::vector<std::string> wrong{"", "\n", "troupe-ticket", text + "x", text.substr(3)};
  for (std::size_t cut = 1; cut < text.size(); ++cut) wrong.push_back(text.substr(0, cut - 1));
  std::string other_version = text;
  other_version[text.find(" 1 ") + 1] = '2';
  wrong.push_back(other_version);
  std::string no_port = text;
  no_port.replace(text.find("40123"), 5, 1, '0');
  wrong.push_back(no_port);
  for (const auto& one : wrong) {
    const auto read = NodeTicket::parse(one);
    ASSERT_FALSE(read.ok()) << one;
    EXPECT_THAT(read.error().message, ::testing::Not(HasSubstr(key)));
  }
}

TEST(NodeTicket, is_read_from_a_pipe_and_nothing_behind_it) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd out(ends[0]), in(ends[1]);
  const std::string text = some_ticket().text() + "rest";
  ASSERT_EQ(::write(in.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const auto read = read_ticket(out.get(), 5s);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->node, "gpu-7.rack_2");
  char rest[8] = {};
  EXPECT_EQ(::read(out.get(), rest, sizeof rest), 4);
}

TEST(NodeTicket, a_starter_that_sends_none_or_ends_is_told) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  EXPECT_EQ(read_ticket(out.get(), 20ms).error().code, ErrorCode::timed_out);
  in.reset();
  EXPECT_EQ(read_ticket(out.get(), 5s).error().code, ErrorCode::peer_died);
}

}  // namespace
}  // namespace troupe
