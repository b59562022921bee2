// Round trip of the step plane with an empty model: an executor-like actor encodes the plan of a
// decode step of 64 sequences and sends it to the first worker, which fans it out; all workers meet
// in a barrier of the tensor group, so that the answer implies that each has the plan; the first
// one answers 64 tokens. Real processes, real StepPlane, Channel and codec. Beside it, in the same
// run, the cost of the parts: a raw socketpair between two processes, and a Channel with 64 bytes
// and no codec. Every figure is taken several times; the best and the middle run are printed.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/step/step_codec.hpp"
#include "actors/worker/startup/worker_groups.hpp"
#include "actors/worker/step_plane.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/channel/channel.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t sequences = 64;
constexpr int steps = 3000;
constexpr int warm_up = 300;
constexpr int repeats = 5;
constexpr auto limit = 60s;
constexpr std::uint32_t epoch = 1;
const std::string ping_purpose = "bench ping";
const std::string executor_name = "executor";

/// Microseconds of one run.
struct Figures {
  double median = 0;
  double p99 = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(median, p99);
  }
};

Figures figures(std::vector<double> samples) {
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

StepPlan decode_step(std::uint64_t step) {
  StepPlan plan;
  plan.step = step;
  plan.epoch = epoch;
  for (std::uint32_t id = 0; id < sequences; ++id) {
    plan.steps.push_back({id, static_cast<std::int32_t>(100 + step), 1, {}, true});
    if (id % 16 == 0) plan.steps.back().new_blocks = {static_cast<std::int32_t>(id)};
  }
  return plan;
}

/// Takes part in the step plane like a Worker, without a model.
class EmptyWorker {
 public:
  EmptyWorker(ActorContext& context, WorkerSpec spec) : context_(context), spec_(std::move(spec)) {}
  ~EmptyWorker() {
    stopping_ = true;
    if (plane_) plane_->interrupt();
    if (groups_) groups_->abort();
    if (echo_) echo_->interrupt();
    if (loop_.joinable()) loop_.join();
  }

  Result<StepAddresses> start() {
    TROUPE_TRY(groups_, WorkerGroups::open(context_, spec_, 0));
    TROUPE_TRY(plane_, StepPlane::open(context_, spec_, {.name = executor_name}));
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

  using Arguments = troupe::Arguments<WorkerSpec>;
  using Methods = troupe::Methods<&EmptyWorker::start, &EmptyWorker::echo>;
  static constexpr std::string_view actor_type = "EmptyWorker";

 private:
  Result<void> serve_step() {
    Result<StepPlan> plan = plane_->receive(deadline_in(1s));
    if (!plan.ok()) {
      return plan.error().code == ErrorCode::timeout ? Result<void>() : Result<void>(plan.error());
    }
    Collectives* tensor = groups_->context().tensor.host;
    if (tensor != nullptr) TROUPE_CHECK(tensor->barrier());
    StepResult result{.step = plan->step, .epoch = plan->epoch, .results = {}};
    for (const SequenceStep& step : plan->steps) {
      result.results.push_back(
          {.id = step.id, .tokens = {7}, .logprobs = {}, .prompt_logprobs = {}});
    }
    return plane_->answer(result, deadline_in(30s));
  }

  ActorContext& context_;
  WorkerSpec spec_;
  std::unique_ptr<WorkerGroups> groups_;
  std::optional<StepPlane> plane_;
  std::optional<Channel> echo_;
  std::atomic<bool> stopping_ = false;
  std::thread loop_;
};

/// The executor's end, like StepLoop's.
class EmptyExecutor {
 public:
  explicit EmptyExecutor(ActorContext& context) : context_(context) {}

  Result<void> connect(const std::string& purpose, const std::string& address) {
    TROUPE_TRY(const Key key, context_.channel_key({purpose, {executor_name, worker_name(0)}}));
    const auto keys = ChannelKeys::derive(key, purpose);
    TROUPE_TRY(channel_, Channel::connect(keys, address));
    return {};
  }

  Result<Figures> run() {
    return measure([this](std::uint64_t) -> Result<void> {
      const StepPlan plan = decode_step(++step_);
      TROUPE_TRY(const auto bytes, encoder_.encode(plan));
      TROUPE_CHECK(channel_->send(bytes, deadline_in(30s)));
      TROUPE_TRY(const Message message, channel_->receive(deadline_in(30s)));
      TROUPE_TRY(const StepResult result, decode_result(message.bytes()));
      if (result.step == step_ && result.results.size() == sequences) return {};
      return fail(ErrorCode::internal, "step {} with {} results instead of step {} with {}",
                  result.step, result.results.size(), step_, sequences);
    });
  }

  Result<Figures> ping() {
    const std::vector<std::byte> payload(64);
    return measure([&](std::uint64_t) -> Result<void> {
      TROUPE_CHECK(channel_->send(payload, deadline_in(limit)));
      TROUPE_TRY(const Message message, channel_->receive(deadline_in(limit)));
      return {};
    });
  }

  using Methods =
      troupe::Methods<&EmptyExecutor::connect, &EmptyExecutor::run, &EmptyExecutor::ping>;
  static constexpr std::string_view actor_type = "EmptyExecutor";

 private:
  ActorContext& context_;
  std::optional<Channel> channel_;
  StepEncoder encoder_;
  std::uint64_t step_ = 0;
};

void print(const char* what, std::vector<Figures> runs, const char* note) {
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.median < b.median; });
  const Figures& best = runs.front();
  const Figures& middle = runs[runs.size() / 2];
  std::printf(
      "%-40s best run: median %6.1f p99 %7.1f us   middle run: median %6.1f p99 %7.1f us%s\n", what,
      best.median, best.p99, middle.median, middle.p99, note);
  std::fflush(stdout);
}

Result<Figures> ping_socketpair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return fail_errno(errno, "socketpair");
  const UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    char buffer[64];
    ::close(mine.get());
    while (::read(theirs.get(), buffer, sizeof buffer) == sizeof buffer &&
           ::write(theirs.get(), buffer, sizeof buffer) == sizeof buffer) {
    }
    ::_exit(0);
  }
  theirs.reset();
  auto result = measure([&](std::uint64_t) -> Result<void> {
    char buffer[64] = {};
    if (::write(mine.get(), buffer, sizeof buffer) == sizeof buffer &&
        ::read(mine.get(), buffer, sizeof buffer) == sizeof buffer) {
      return {};
    }
    return fail_errno(errno, "socketpair");
  });
  ::shutdown(mine.get(), SHUT_RDWR);
  ::waitpid(child, nullptr, 0);
  return result;
}

Result<void> bench_ceilings() {
  std::vector<Figures> raw, channel;
  for (int i = 0; i < repeats; ++i) {  // it forks, so this process has no thread yet
    TROUPE_TRY(const Figures one, ping_socketpair());
    raw.push_back(one);
  }
  print("raw socketpair, 64 bytes", raw, "");
  TROUPE_TRY(const auto cluster, Cluster::start({}));
  TROUPE_TRY(const auto executor,
             cluster->spawn<EmptyExecutor>({.name = executor_name}).get(limit));
  TROUPE_TRY(const auto worker,
             cluster->spawn<EmptyWorker>({.name = worker_name(0)}, WorkerSpec{}).get(limit));
  TROUPE_TRY(const auto address, worker.call<&EmptyWorker::echo>().get(limit));
  TROUPE_CHECK(executor.call<&EmptyExecutor::connect>(ping_purpose, address).get(limit));
  for (int i = 0; i < repeats; ++i) {
    TROUPE_TRY(const Figures one, executor.call<&EmptyExecutor::ping>().get(limit));
    channel.push_back(one);
  }
  print("channel, 64 bytes, no codec", channel, "");
  return {};
}

Result<void> bench_step(int workers, const char* note) {
  TROUPE_TRY(const auto cluster, Cluster::start({}));
  TROUPE_TRY(const auto executor,
             cluster->spawn<EmptyExecutor>({.name = executor_name}).get(limit));
  std::vector<ActorHandle<EmptyWorker>> group;
  std::string step_address;
  for (int rank = 0; rank < workers; ++rank) {
    const WorkerSpec spec{.model_path = "",
                          .rank = rank,
                          .tensor_parallel_size = workers,
                          .max_model_len = 2048,
                          .epoch = epoch};
    TROUPE_TRY(auto worker,
               cluster->spawn<EmptyWorker>({.name = worker_name(rank)}, spec).get(limit));
    TROUPE_TRY(const auto addresses, worker.call<&EmptyWorker::start>().get(limit));
    if (!addresses.plans.empty()) step_address = addresses.plans;
    group.push_back(std::move(worker));
  }
  const std::string purpose =
      step_channel_scope(epoch, executor_name, 0, StepDirection::plans).purpose;
  TROUPE_CHECK(executor.call<&EmptyExecutor::connect>(purpose, step_address).get(limit));
  std::vector<Figures> runs;
  for (int i = 0; i < repeats; ++i) {
    TROUPE_TRY(const Figures one, executor.call<&EmptyExecutor::run>().get(limit));
    runs.push_back(one);
  }
  const std::string what = fmt::format("step plane, {} sequences, {} worker{}", sequences, workers,
                                       workers == 1 ? "" : "s");
  print(what.c_str(), runs, note);
  return {};
}

int run() {
  Result<void> done = bench_ceilings();
  if (done.ok()) done = bench_step(1, "   (target 150 us)");
  if (done.ok()) done = bench_step(4, "   (target 400 us)");
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::EmptyExecutor>();
  types.add<troupe::EmptyWorker>();
  troupe::init(argc, argv, types);
  return troupe::run();
}
