#include "actors/executor/executor.hpp"

#include <utility>
#include <vector>

#include "actors/executor/step_loop.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

Executor::Executor(ActorContext& context, ExecutorSpec spec)
    : context_(context), spec_(std::move(spec)) {}

Executor::~Executor() {
  {
    std::lock_guard lock(inbox_.mutex);
    inbox_.stopping = true;
  }
  inbox_.changed.notify_all();
  if (steps_) steps_->interrupt();
  if (loop_.joinable()) loop_.join();
}

Result<std::uint32_t> Executor::load() {
  const std::uint32_t incarnation = context_.address().incarnation;
  if (preprocessor_) return incarnation;
  TROUPE_TRY(RequestPreprocessor preprocessor,
             RequestPreprocessor::load(spec_.model_path, spec_.max_model_len, spec_.created));
  preprocessor_ = std::make_unique<RequestPreprocessor>(std::move(preprocessor));
  return incarnation;
}

Result<std::vector<Scheduler>> Executor::make_schedulers(const ExecutorStart& start) const {
  SchedulerConfig config = start.scheduler;
  config.windows.clear();
  for (const CacheSpec& spec : cache_groups(preprocessor_->config())) {
    config.windows.push_back(static_cast<std::int32_t>(spec.window));
  }
  std::vector<Scheduler> schedulers;
  for (std::size_t i = 0; i < start.replicas.size(); ++i) {
    TROUPE_TRY(Scheduler scheduler, Scheduler::make(config));
    scheduler.restart(start.epoch);
    schedulers.push_back(std::move(scheduler));
  }
  return schedulers;
}

Result<void> Executor::start(const ExecutorStart& start) {
  if (!preprocessor_) return fail(ErrorCode::invalid_argument, "start() before load()");
  if (loop_.joinable()) return fail(ErrorCode::invalid_argument, "start() before pause()");
  std::vector<StepChannels> channels;
  for (const ReplicaAddresses& replica : start.replicas) {
    TROUPE_TRY(StepChannels connected, connect(start.epoch, replica));
    channels.push_back(std::move(connected));
  }
  if (steps_) {
    steps_->restart(std::move(channels), start.epoch, start.taken_back);
  } else {
    TROUPE_TRY(auto schedulers, make_schedulers(start));
    steps_ =
        std::make_unique<StepLoop>(StepDomain(std::move(schedulers)), std::move(channels), inbox_,
                                   spec_, context_.address(), preprocessor_->tokenizer());
    if (start.takes_over) steps_->take_over(start.epoch);
    since_ns_ = monotonic_ns();
  }
  loop_ = std::thread([this] { run(); });
  return {};
}

void Executor::run() {
  const Result<void> ended = steps_->run();
  if (ended.ok()) return;
  log::error("{}", ended.error().message);
  context_.exit(ended.error().message);
}

std::vector<UnderWay> Executor::pause() {
  if (!loop_.joinable()) return {};
  {
    std::lock_guard lock(inbox_.mutex);
    inbox_.pausing = true;
  }
  inbox_.changed.notify_all();
  steps_->interrupt();
  loop_.join();
  {
    std::lock_guard lock(inbox_.mutex);
    inbox_.pausing = false;
  }
  return steps_->under_way();
}

Result<StepChannels> Executor::connect(std::uint32_t epoch,
                                       const ReplicaAddresses& addresses) const {
  const auto connect_to = [&](const StepAddress& at, StepDirection direction) -> Result<Channel> {
    const ChannelScope scope = step_channel_scope(epoch, context_.name(), at.rank, direction);
    TROUPE_TRY(const Key key, context_.channel_key(scope));
    return Channel::connect(ChannelKeys::derive(key, scope.purpose), at.address);
  };
  StepChannels channels;
  for (const StepAddress& at : addresses.plans) {
    TROUPE_TRY(Channel plans, connect_to(at, StepDirection::plans));
    channels.plans.push_back(std::move(plans));
  }
  channels.answering_plans = static_cast<std::size_t>(addresses.answering);
  if (addresses.results) {
    TROUPE_TRY(channels.results, connect_to(*addresses.results, StepDirection::results));
  }
  return channels;
}

void Executor::submit(std::uint32_t incarnation, std::int32_t replica,
                      std::vector<SubmittedRequest> requests) {
  if (incarnation != context_.address().incarnation) return;
  std::vector<ExecutorInbox::Entry> prepared;
  prepared.reserve(requests.size());
  for (SubmittedRequest& submitted : requests) {
    const std::int64_t deadline_ms = submitted.request.deadline_ms;
    auto ready = preprocessor_->prepare(std::move(submitted.request));
    if (auto* good = std::get_if<PreparedRequest>(&ready); good != nullptr && deadline_ms > 0) {
      good->deadline_us = StepLoop::now_us() + deadline_ms * 1000;
    }
    prepared.push_back(
        {static_cast<std::size_t>(replica), std::move(ready), std::move(submitted.progress)});
  }
  {
    std::lock_guard lock(inbox_.mutex);
    for (auto& entry : prepared) inbox_.submitted.push_back(std::move(entry));
  }
  inbox_.changed.notify_all();
}

void Executor::note_peaks(std::int32_t rank, std::vector<LayerPeak> peaks) {
  const std::lock_guard lock(inbox_.mutex);
  inbox_.peaks.push_back({rank, std::move(peaks)});
}

ProcessTelemetry Executor::telemetry(bool all) {
  ProcessTelemetry seen = steps_ ? steps_->telemetry(all) : ProcessTelemetry();
  seen.process = context_.name();
  seen.role = ProcessRole::executor;
  seen.since_ns = since_ns_;
  return seen;
}

void Executor::drain() {
  {
    std::lock_guard lock(inbox_.mutex);
    inbox_.draining = true;
  }
  inbox_.changed.notify_all();
}

}  // namespace troupe
