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

#include "actors/api/report_sink.hpp"
#include "actors/api/request_progress.hpp"
#include "actors/executor/request_preprocessor.hpp"
#include "actors/executor/step_limit.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "actors/scheduler/scheduler_config.hpp"
#include "actors/scheduler/under_way.hpp"
#include "actors/step/peak_sink.hpp"
#include "actors/step/step_address.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class StepLoop;
struct StepChannels;

struct ExecutorSpec {
  std::string model_path;
  std::int32_t domain = 0;
  std::int64_t max_model_len = 0;
  std::int64_t created = 0;     ///< see EngineSpec
  bool keeps_progress = false;  ///< its reports tell the progress of unfinished requests
  std::int64_t least_step_limit_us = StepLimit::least_on_cpus.count();
  ActorHandle<ReportSink> reports;

  template <class Archive>
  void fields(Archive& archive) {
    archive(model_path, domain, max_model_len, created, keeps_progress, least_step_limit_us,
            reports);
  }
};

/// Settings that the executor gets once the workers are ready.
struct ExecutorStart {
  std::vector<ReplicaAddresses> replicas;  ///< of the domain, in order
  std::uint32_t epoch = 0;
  SchedulerConfig scheduler;  ///< for each replica; the windows come from the model, whatever this
                              ///< says
  bool takes_over = false;    ///< from a former executor, whose requests have been submitted
  std::vector<std::uint64_t> taken_back;  ///< requests to forget

  template <class Archive>
  void fields(Archive& archive) {
    archive(replicas, epoch, scheduler, takes_over, taken_back);
  }
};

/// Requests and commands from submit() and drain(), to be taken by the step loop.
struct ExecutorInbox {
  struct Entry {
    std::size_t replica = 0;  ///< place in the domain
    std::variant<PreparedRequest, Completion> prepared;
    std::vector<SequenceUpdate> progress;  ///< see SubmittedRequest
  };

  std::mutex mutex;
  std::condition_variable changed;
  /// What a rank has told of its layers.
  struct Peaks {
    std::int32_t rank = 0;
    std::vector<LayerPeak> peaks;
  };
  std::vector<Entry> submitted;
  std::vector<Peaks> peaks;  ///< wait for the next step: they wake nobody
  bool draining = false;
  bool pausing = false;
  bool stopping = false;

  bool is_empty() {
    const std::lock_guard lock(mutex);
    return submitted.empty();
  }
};

/// The actor that runs the scheduler loop of a step domain. Its methods render and tokenise; its
/// own thread plans steps, exchanges them with the workers, and reports answers to the spec's sink.
/// If the loop fails the actor exits and its watchers get the reason.
class Executor final : public PeakSink {
 public:
  Executor(ActorContext& context, ExecutorSpec spec);
  ~Executor() override;

  /// Reads tokenizer, template and configs, once. Returns the actor's incarnation.
  Result<std::uint32_t> load();
  /// Connects to the workers and begins the loop. After pause() it goes on with the requests that
  /// it has and the tokens that these have, on workers that know nothing of them.
  Result<void> start(const ExecutorStart& start);
  /// Ends the loop without awaiting steps in flight, whose results are dropped, and reports what is
  /// answered. Keeps all requests and takes more. Does nothing before start(). Returns the requests
  /// in these steps, once.
  std::vector<UnderWay> pause();
  /// Takes requests for replica number `replica` of the domain, after load(); each is answered by
  /// exactly one Completion or, after drain(), may be dropped. Requests for another incarnation
  /// than this one are ignored: that has ended, and they are submitted again.
  void submit(std::uint32_t incarnation, std::int32_t replica,
              std::vector<SubmittedRequest> requests);
  /// Ends requests that have not begun, here or elsewhere; they are reported as dropped.
  void drain();
  /// How the loop has spent its time; with `all` also spans and inter-token times.
  ProcessTelemetry telemetry(bool all);

  /// Plans from the next one on name these layers.
  void note_peaks(std::int32_t rank, std::vector<LayerPeak> peaks) override;

  using Arguments = troupe::Arguments<ExecutorSpec>;
  using Methods =
      troupe::Methods<&PeakSink::note_peaks, &Executor::load, &Executor::start, &Executor::submit,
                      &Executor::drain, &Executor::telemetry, &Executor::pause>;
  static constexpr std::string_view actor_type = "Executor";

 private:
  Result<std::vector<Scheduler>> make_schedulers(const ExecutorStart& start) const;
  void run();
  Result<StepChannels> connect(std::uint32_t epoch, const ReplicaAddresses& addresses) const;

  ActorContext& context_;
  ExecutorSpec spec_;
  std::unique_ptr<RequestPreprocessor> preprocessor_;
  ExecutorInbox inbox_;
  std::unique_ptr<StepLoop> steps_;
  std::int64_t since_ns_ = 0;  ///< when the loop began
  std::thread loop_;
};

}  // namespace troupe
