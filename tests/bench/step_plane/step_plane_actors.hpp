#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/step/step_codec.hpp"
#include "actors/worker/step_plane.hpp"
#include "parallel/group/group_member.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/channel/channel.hpp"
#include "tests/bench/collectives/tcp_pair.hpp"

namespace troupe {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline constexpr std::uint32_t sequences = 64;
inline constexpr int steps = 3000;
inline constexpr int warm_up = 300;
inline constexpr int repeats = 5;
inline constexpr auto limit = 60s;
inline constexpr std::uint32_t epoch = 1;
inline const std::string ping_purpose = "bench ping";
inline const std::string executor_name = "executor";
inline const ExecutorPlace place_of_executor{.name = executor_name, .node = "", .pid = 0};

/// Microseconds of one run.
struct Figures {
  double median = 0;
  double p99 = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(median, p99);
  }
};

inline Figures figures(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[samples.size() * 99 / 100]};
}

/// Runs `round` warm_up + steps times and times each.
template <class Round>
Result<Figures> measure(Round round) {
  std::vector<double> samples;
  for (int i = 0; i < warm_up + steps; ++i) {
    const auto begin = Clock::now();
    TROUPE_CHECK(round(static_cast<std::uint64_t>(i)));
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (i >= warm_up) samples.push_back(took.count());
  }
  return figures(std::move(samples));
}

inline StepPlan decode_step(std::uint64_t step) {
  StepPlan plan;
  plan.step = step;
  plan.epoch = epoch;
  for (std::uint32_t id = 0; id < sequences; ++id) {
    plan.steps.push_back({id, static_cast<std::int32_t>(100 + step), 1, {}, true});
    if (id % 16 == 0) plan.steps.back().new_blocks = {static_cast<std::int32_t>(id)};
  }
  return plan;
}

/// Takes part in the step plane like a Worker, without a model; in a group, the members meet at a
/// barrier in each step.
class EmptyWorker final : public GroupMember {
 public:
  EmptyWorker(ActorContext& context, WorkerSpec spec, ExecutorPlace executor)
      : GroupMember(context),
        context_(context),
        spec_(std::move(spec)),
        executor_(std::move(executor)) {}
  ~EmptyWorker() override {
    stopping_ = true;
    if (plane_) plane_->interrupt();
    abort_group();
    if (echo_) echo_->interrupt();
    if (loop_.joinable()) loop_.join();
    if (tcp_loop_.joinable()) tcp_loop_.join();  // the executor has closed its end
  }

  Result<StepAddresses> start() {
    TROUPE_TRY(plane_, StepPlane::open(context_, spec_, epoch, executor_));
    loop_ = std::thread([this] {
      while (!stopping_) {
        const Result<void> served = serve_step();
        if (served.ok() || stopping_) continue;
        return context_.exit(served.error().message);
      }
    });
    return plane_->addresses();
  }

  /// Listens for another actor's pings of 64 bytes and answers them on its own thread.
  Result<std::string> echo() {
    TROUPE_TRY(const Key key,
               context_.channel_key({ping_purpose, {executor_name, worker_name(0)}}));
    const auto keys = ChannelKeys::derive(key, ping_purpose);
    TROUPE_TRY(echo_, Channel::listen(keys, ChannelEndpoint::on_this_node()));
    loop_ = std::thread([this] {
      while (!stopping_) {
        const auto message = echo_->receive(deadline_in(limit));
        if (message.ok()) (void)echo_->send(message->bytes(), deadline_in(limit));
      }
    });
    return echo_->address();
  }

  /// Listens for the executor's plain TCP connection, on which it takes plans of `plan_bytes` and,
  /// if `result_bytes` is not 0, answers each; returns its port.
  Result<std::uint16_t> serve_tcp(std::uint64_t plan_bytes, std::uint64_t result_bytes) {
    const std::uint16_t port = tcp_.listen(context_.node_address().c_str());
    if (port == 0) return fail_errno(errno, "cannot listen at " + context_.node_address());
    tcp_loop_ = std::thread([this, plan_bytes, result_bytes] {
      const std::vector<char> result(result_bytes);
      std::vector<char> plan(plan_bytes);
      bool goes_on = tcp_.accept();
      while (goes_on) {
        goes_on = tcp_.receive(plan.data(), plan.size()) && tcp_.send(result.data(), result.size());
      }
    });
    return port;
  }

  std::string address() { return context_.node_address(); }

  using Arguments = troupe::Arguments<WorkerSpec, ExecutorPlace>;
  using Methods = GroupMember::Methods::plus<&EmptyWorker::start, &EmptyWorker::echo,
                                             &EmptyWorker::serve_tcp, &EmptyWorker::address>;
  static constexpr std::string_view actor_type = "EmptyWorker";

 private:
  Result<void> serve_step() {
    Result<StepPlan> plan = plane_->receive(deadline_in(1s));
    if (!plan.ok()) {
      return plan.error().code == ErrorCode::timed_out ? Result<void>()
                                                       : Result<void>(plan.error());
    }
    if (const auto group = collectives()) TROUPE_CHECK(group->barrier());
    StepResult result{.step = plan->step, .epoch = plan->epoch, .results = {}};
    for (const SequenceStep& step : plan->steps) {
      result.results.push_back(
          {.id = step.id, .tokens = {7}, .logprobs = {}, .prompt_logprobs = {}});
    }
    return plane_->answer(result, deadline_in(30s));
  }

  ActorContext& context_;
  WorkerSpec spec_;
  ExecutorPlace executor_;
  std::optional<StepPlane> plane_;
  std::optional<Channel> echo_;
  std::atomic<bool> stopping_ = false;
  std::thread loop_;
  TcpPair tcp_;
  std::thread tcp_loop_;
};

/// The executor's end, like StepLoop's.
class EmptyExecutor {
 public:
  explicit EmptyExecutor(ActorContext& context) : context_(context) {}

  /// Once for each worker that takes plans; the last one answers.
  Result<void> connect(int rank, const std::string& purpose, const std::string& address) {
    TROUPE_TRY(const Key key, context_.channel_key({purpose, {executor_name, worker_name(rank)}}));
    const auto keys = ChannelKeys::derive(key, purpose);
    TROUPE_TRY(auto channel, Channel::connect(keys, address));
    channels_.push_back(std::move(channel));
    return {};
  }
  Result<void> connect_tcp(const std::string& address, std::uint16_t port) {
    if (tcp_.emplace_back().connect(port, address.c_str())) return {};
    return fail_errno(errno, "cannot connect to " + address);
  }

  Result<Figures> run() {
    return measure([this](std::uint64_t) -> Result<void> {
      const StepPlan plan = decode_step(++step_);
      TROUPE_TRY(const auto bytes, encoder_.encode(plan));
      for (Channel& channel : channels_) TROUPE_CHECK(channel.send(bytes, deadline_in(30s)));
      TROUPE_TRY(const Message message, channels_.back().receive(deadline_in(30s)));
      sizes_ = {bytes.size(), message.bytes().size()};
      TROUPE_TRY(const StepResult result, decode_result(message.bytes()));
      if (result.step == step_ && result.results.size() == sequences) return {};
      return fail(ErrorCode::internal, "step {} with {} results instead of step {} with {}",
                  result.step, result.results.size(), step_, sequences);
    });
  }

  Result<Figures> ping() {
    const std::vector<std::byte> payload(64);
    return measure([&](std::uint64_t) -> Result<void> {
      TROUPE_CHECK(channels_.back().send(payload, deadline_in(limit)));
      TROUPE_TRY(const Message message, channels_.back().receive(deadline_in(limit)));
      return {};
    });
  }

  /// The bytes of the last plan and of its result.
  std::vector<std::uint64_t> sizes() { return sizes_; }

  /// The same over plain TCP.
  Result<Figures> run_tcp() {
    const std::vector<char> plan(sizes_.at(0));
    std::vector<char> result(sizes_.at(1));
    return measure([&](std::uint64_t) -> Result<void> {
      for (const TcpPair& worker : tcp_) {
        if (!worker.send(plan.data(), plan.size())) return fail_errno(errno, "TCP");
      }
      if (tcp_.back().receive(result.data(), result.size())) return {};
      return fail_errno(errno, "TCP");
    });
  }
  void close_tcp() { tcp_.clear(); }

  using Methods =
      troupe::Methods<&EmptyExecutor::connect, &EmptyExecutor::run, &EmptyExecutor::ping,
                      &EmptyExecutor::sizes, &EmptyExecutor::connect_tcp, &EmptyExecutor::run_tcp,
                      &EmptyExecutor::close_tcp>;
  static constexpr std::string_view actor_type = "EmptyExecutor";

 private:
  ActorContext& context_;
  std::vector<Channel> channels_;
  std::vector<TcpPair> tcp_;
  std::vector<std::uint64_t> sizes_;
  StepEncoder encoder_;
  std::uint64_t step_ = 0;
};

}  // namespace troupe
