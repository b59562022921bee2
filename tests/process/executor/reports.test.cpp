#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/executor/executor.hpp"
#include "runtime/actor/cluster.hpp"
#include "tests/support/source_path.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto limit = 20s;

/// Fails on every report, as a driver without memory does.
class FailingSink final : public ReportSink {
 public:
  explicit FailingSink(ActorContext& /*context*/) {}
  void report(EngineReport /*report*/) override { throw std::runtime_error("no room for it"); }
  using Arguments = troupe::Arguments<>;
  using Methods = ReportSink::Methods;
  static constexpr std::string_view actor_type = "FailingSink";
};

/// A request that is answered without a step: its prompt is longer than the context.
std::vector<SubmittedRequest> too_long() {
  Request request;
  request.id = 1;
  request.kind = PromptKind::token_ids;
  request.prompt_ids.assign(4096, 5);
  std::vector<SubmittedRequest> submitted;
  submitted.push_back({std::move(request), {}});
  return submitted;
}

/// A replica without workers, which do not matter here.
ExecutorStart no_workers() {
  ExecutorStart start;
  start.replicas.resize(1);
  start.scheduler.max_num_seqs = 4;
  start.scheduler.max_num_batched_tokens = 64;
  start.scheduler.max_model_len = 256;
  start.scheduler.block_size = 16;
  start.scheduler.kv_cache_blocks = 64;
  return start;
}

TEST(ExecutorReports, that_their_receiver_fails_on_end_the_executor) {
  auto cluster = Cluster::start({});
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  const auto sink = (*cluster)->spawn_local<FailingSink>({.name = "sink"}).get(limit);
  ASSERT_TRUE(sink.ok()) << sink.error().message;
  const auto executor =
      (*cluster)
          ->spawn<Executor>({.name = "executor"},
                            ExecutorSpec{.model_path = test::source_path("configs/demo/fable-moe"),
                                         .max_model_len = 256,
                                         .reports = *sink})
          .get(limit);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  const Promise<ActorDown> ended;
  const auto watch =
      (*cluster)->watch(*executor, [ended](const ActorDown& down) { ended.complete(down); });
  ASSERT_TRUE(executor->call<&Executor::load>().get(limit).ok());
  const auto started = executor->call<&Executor::start>(no_workers()).get(limit);
  ASSERT_TRUE(started.ok()) << started.error().message;
  executor->call<&Executor::submit>(std::uint32_t{0}, std::int32_t{0}, too_long());
  const auto down = ended.future().get(limit);
  ASSERT_TRUE(down.ok()) << "it goes on although an answer is lost";
  EXPECT_EQ(down->cause, DownCause::exited) << down->message;
  EXPECT_THAT(down->message, HasSubstr("no room for it"));
}

}  // namespace
}  // namespace troupe::test
