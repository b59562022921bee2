#include "launcher/eval/eval_engine.hpp"

#include <chrono>
#include <utility>

#include "launcher/job/engine_start.hpp"
#include "launcher/job/node_wait.hpp"

namespace troupe {
namespace {

constexpr auto tick = std::chrono::milliseconds(50);

void show(const EvalEngine::Context& context) {
  static const auto began = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  context.state.seconds = seconds.count();
  context.progress.update(context.state);
}

bool goes_on(const EvalEngine::Context& context) {
  show(context);
  return context.signals.count() == 0;
}

Error stopped() { return fail(ErrorCode::cancelled, "stopped by a signal"); }

}  // namespace

Result<EvalEngine> EvalEngine::start(const JobPlan& plan, const Context& context) {
  NodeWait nodes(plan.config,
                 [&](const std::string& line) { context.progress.tell("launcher: " + line); });
  context.state.phase = "starting";
  auto started =
      EngineSession::start(plan, context.log_folder, context.log_level,
                           {.while_waiting =
                                [&](const ClusterWait& wait) {
                                  context.state.phase = nodes.update(wait);
                                  context.signals.on_pause(wait.suspend, wait.resume);
                                  return goes_on(context);
                                },
                            .keep_going = [&] { return goes_on(context); },
                            .on_staging =
                                [&](std::uint64_t copied, std::uint64_t total, std::size_t copies) {
                                  context.state.phase = copying_phase(copied, total, copies);
                                  return goes_on(context);
                                }});
  context.signals.on_pause({}, {});
  TROUPE_TRY(auto session, std::move(started));
  EvalEngine engine(std::move(session), context);
  EngineSession& own = *engine.session_;
  context.signals.on_pause([&own] { own.suspend(); }, [&own] { own.resume(); });
  const auto ready = own.wait_until_ready([&] {
    context.state.phase = loading_phase(plan.config.model.path, own.loading());
    return goes_on(context);
  });
  if (!ready.ok()) return ready.error();
  context.state.phase.clear();
  return engine;
}

EvalEngine::~EvalEngine() {
  if (session_ != nullptr) context_.signals.on_pause({}, {});
}

Result<void> EvalEngine::ask(std::vector<Request> requests, std::size_t at_once,
                             const OnAnswer& on_answer) {
  std::size_t submitted = 0, answered = 0;
  while (answered < requests.size()) {
    if (!goes_on(context_)) return stopped();
    std::vector<Request> batch;
    while (submitted < requests.size() && submitted - answered < at_once) {
      requests[submitted].id = submitted + 1;
      batch.push_back(std::move(requests[submitted++]));
    }
    if (!batch.empty()) TROUPE_CHECK(session_->engine().submit(std::move(batch)));
    TROUPE_TRY(const std::size_t taken, take_answers(on_answer));
    answered += taken;
  }
  return {};
}

Result<std::size_t> EvalEngine::take_answers(const OnAnswer& on_answer) {
  std::size_t taken = 0;
  Mailbox::Content content = session_->take(tick);
  for (EngineReport& report : content.reports) {
    context_.state.running = report.stats.running;
    context_.state.waiting = report.stats.waiting;
    context_.state.prompt_tokens = report.stats.scheduler.prompt_tokens;
    context_.state.output_tokens = report.stats.output_tokens;
    for (Completion& completion : report.completions) {
      if (completion.failed()) {
        return fail(ErrorCode::invalid_argument, "the engine refused a request: {}",
                    completion.error);
      }
      TROUPE_CHECK(on_answer(completion.id - 1, completion));
      ++taken;
      ++context_.state.done;
    }
  }
  if (!content.downs.empty()) {
    return session_->cause_of(std::move(content.downs), [](const EngineReport&) {});
  }
  return taken;
}

}  // namespace troupe
