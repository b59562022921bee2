#include "runtime/object/segment_server.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace troupe {
namespace {

/// A server with one object, which anybody may pin.
class SegmentServers : public ::testing::Test {
 protected:
  SegmentServers() {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
    ::setrlimit(RLIMIT_NOFILE, &files);
  }

  SegmentPool pool_{[](std::int64_t) { return true; }};
  const std::shared_ptr<Segment> segment_ = *pool_.take(200'000);
  const std::unique_ptr<SegmentServer> server_ = *SegmentServer::start(
      fmt::format("troupe-test-{}-segments", ::getpid()), pool_,
      {[this](const SegmentAsk&) { return SegmentServer::Store::Pinned{segment_, 200'000}; },
       [](const SegmentAsk&) {}});
};

TEST_F(SegmentServers, serve_any_number_of_readers) {
  std::vector<std::unique_ptr<SegmentClient>> readers;
  for (int i = 0; i < 1100; ++i) readers.push_back(std::make_unique<SegmentClient>());
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < readers.size(); ++i) {
      Deadline deadline = deadline_in(std::chrono::seconds(10));
      const auto given = readers[i]->ask(server_->name(), {.token = server_->token()}, deadline);
      ASSERT_TRUE(given.ok()) << "reader " << i << ": " << given.error().message;
      EXPECT_EQ(given->bytes, 200'000);
    }
  }
}

}  // namespace
}  // namespace troupe
