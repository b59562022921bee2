#include "actors/executor/executor.hpp"

#include <utility>

#include "actors/executor/step_loop.hpp"
#include "actors/worker/worker.hpp"
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

Result<void> Executor::load() {
  TROUPE_TRY(RequestIntake intake, RequestIntake::load(spec_.model_path, spec_.max_model_len));
  intake_ = std::make_unique<RequestIntake>(std::move(intake));
  return {};
}

Result<void> Executor::start(const ExecutorStart& start) {
  if (!intake_) return fail(ErrorCode::invalid_argument, "start() before load()");
  TROUPE_TRY(Scheduler scheduler,
             Scheduler::make({.max_num_seqs = start.max_num_seqs,
                              .max_num_batched_tokens = start.max_num_batched_tokens,
                              .max_model_len = static_cast<std::int32_t>(spec_.max_model_len),
                              .block_size = start.block_size,
                              .kv_cache_blocks = start.kv_cache_blocks,
                              .chunked_prefill = start.chunked_prefill}));
  scheduler.restart(start.epoch);
  const std::string purpose = step_channel_purpose(start.epoch, spec_.replica);
  TROUPE_TRY(Channel channel,
             Channel::connect(ChannelKeys::derive(context_.keys().derive(purpose), purpose),
                              start.step_address));
  steps_ = std::make_unique<StepLoop>(std::move(scheduler), std::move(channel), inbox_,
                                      spec_.replica, intake_->tokenizer(), spec_.driver);
  loop_ = std::thread([this] {
    const Result<void> ended = steps_->run();
    if (ended.ok()) return;
    log::error("{}", ended.error().message);
    context_.exit(ended.error().message);
  });
  return {};
}

void Executor::submit(std::vector<Request> requests) {
  std::vector<std::variant<SequenceSpec, Completion>> prepared;
  prepared.reserve(requests.size());
  for (Request& request : requests) prepared.push_back(intake_->prepare(std::move(request)));
  {
    std::lock_guard lock(inbox_.mutex);
    for (auto& entry : prepared) inbox_.submitted.push_back(std::move(entry));
  }
  inbox_.changed.notify_all();
}

void Executor::drain() {
  {
    std::lock_guard lock(inbox_.mutex);
    inbox_.draining = true;
  }
  inbox_.changed.notify_all();
}

}  // namespace troupe
