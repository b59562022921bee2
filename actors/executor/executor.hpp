#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "actors/engine/request.hpp"
#include "actors/executor/request_intake.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class Driver;
class StepLoop;

struct ExecutorSpec {
  std::string model_path;
  std::int32_t replica = 0;
  std::int64_t max_model_len = 0;
  ActorHandle<Driver> driver;  ///< who is told of answers

  template <class Archive>
  void fields(Archive& archive) {
    archive(model_path, replica, max_model_len, driver);
  }
};

/// What the executor must know once the workers are ready.
struct ExecutorStart {
  std::string step_address;  ///< of the first worker
  std::uint32_t epoch = 0;
  std::int32_t max_num_seqs = 256;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t block_size = 16;
  std::int32_t kv_cache_blocks = 0;
  bool chunked_prefill = true;

  template <class Archive>
  void fields(Archive& archive) {
    archive(step_address, epoch, max_num_seqs, max_num_batched_tokens, block_size, kv_cache_blocks,
            chunked_prefill);
  }
};

/// What submit() and drain() leave for the step loop to take.
struct ExecutorInbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::variant<SequenceSpec, Completion>> submitted;
  bool draining = false;
  bool stopping = false;
};

/// The actor that runs one replica's scheduler loop. Its methods render and tokenise; a thread of
/// its own plans steps, exchanges them with the workers, and reports answers to the driver. If the
/// loop fails the actor exits, and the reason goes to whoever watches it.
class Executor {
 public:
  Executor(ActorContext& context, ExecutorSpec spec);
  ~Executor();

  /// Reads tokenizer, template and configs.
  Result<void> load();
  /// Connects to the workers and begins the loop.
  Result<void> start(const ExecutorStart& start);
  /// Takes requests; each is answered by exactly one Completion or, after drain(), maybe dropped.
  void submit(std::vector<Request> requests);
  /// Ends requests that have not begun; they are reported as dropped.
  void drain();

  using Arguments = troupe::Arguments<ExecutorSpec>;
  using Methods =
      troupe::Methods<&Executor::load, &Executor::start, &Executor::submit, &Executor::drain>;
  static constexpr std::string_view actor_type = "Executor";

 private:
  ActorContext& context_;
  ExecutorSpec spec_;
  std::unique_ptr<RequestIntake> intake_;
  ExecutorInbox inbox_;
  std::unique_ptr<StepLoop> steps_;
  std::thread loop_;
};

}  // namespace troupe
