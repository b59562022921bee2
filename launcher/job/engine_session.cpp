#include "launcher/job/engine_session.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "actors/api/losses.hpp"
#include "actors/worker/phase_times.hpp"
#include "launcher/job/cluster_nodes.hpp"
#include "launcher/job/exit_messages.hpp"
#include "launcher/job/node_join.hpp"
#include "launcher/job/node_preflight.hpp"
#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds(50);
constexpr auto shutdown_limit = std::chrono::milliseconds(500);
/// One death causes others (a node takes its workers along); the first cause is among those
/// reported within this time.
constexpr auto cause_wait = std::chrono::milliseconds(100);
/// For the agent of a node that is let go to end.
constexpr auto drain_limit = std::chrono::seconds(5);

/// Lets a node go, and waits until its agent has ended, so that another one may take its place.
Result<std::string> drain_node(const Cluster& cluster, Engine& engine, const std::string& node,
                               const KeepGoing& keep_going) {
  TROUPE_TRY(std::string told, engine.drain_node(node));
  Deadline deadline(drain_limit);
  while (is_alive(cluster, node) && !deadline.is_over() && keep_going()) {
    std::this_thread::sleep_for(tick);
  }
  return told;
}

}  // namespace

Result<std::unique_ptr<EngineSession>> EngineSession::start(const JobPlan& plan,
                                                            const std::string& log_folder,
                                                            log::Level log_level,
                                                            const SessionEvents& events) {
  std::unique_ptr<EngineSession> session(new EngineSession);
  ClusterOptions cluster = plan.cluster;
  cluster.job_folder = log_folder;
  cluster.log_folder = log_folder;
  cluster.log_level = log_level;
  cluster.while_waiting = events.while_waiting;
  EngineSpec spec = plan.engine;
  PhaseTimes times;
  if (has_preflight(plan)) {
    TROUPE_CHECK(check_own_open_files(plan));
  }
  TROUPE_CHECK(read_token(plan.config, cluster));
  Preflight preflight(preflight_needs(plan));
  if (cluster.join) {
    cluster.judge = [&preflight](Cluster& nodes, const JoinedNode& node) {
      return preflight.look_at(nodes, node);
    };
  }
  if (has_preflight(plan)) {
    session->trial_ = std::make_unique<NodeTrial>(preflight_needs(plan), session->keep_going());
    cluster.judge_replacement = [&trial = *session->trial_](Cluster& nodes,
                                                            const JoinedNode& node) {
      return trial.judge(nodes, node);
    };
  }
  TROUPE_TRY(session->cluster_, Cluster::start(std::move(cluster)));
  times.note("agents");
  if (has_preflight(plan)) {
    TROUPE_TRY(const auto report, preflight.finish(*session->cluster_, events.keep_going));
    if (events.on_preflight) events.on_preflight(report);
    TROUPE_CHECK(check_preflight(report));
    times.note("preflight");
    if (!report.needs.stage_folder.empty()) {
      TROUPE_TRY(const auto folders,
                 stage_checkpoints(*session->cluster_, report, events.on_staging));
      session->trial_->set_folders(folders);
      if (!folders.empty()) spec.model_path = folders[0];
      if (folders.size() > 1) spec.draft_model_path = folders[1];
      times.note("copies");
    }
  }
  log::info("the nodes were ready after {}", times.text());
  Mailbox& mailbox = session->mailbox_;
  TROUPE_TRY(
      session->engine_,
      Engine::create(*session->cluster_, std::move(spec),
                     {.on_report = [&mailbox](EngineReport r) { mailbox.put(std::move(r)); },
                      .on_down = [&mailbox](const ActorDown& d) { mailbox.put(d); },
                      .on_telemetry =
                          [&mailbox](bool all, Result<ProcessTelemetry> told) {
                            mailbox.put(Mailbox::Telemetry{all, std::move(told)});
                          },
                      .on_loading = [&mailbox](const LoadingState& s) { mailbox.put(s); },
                      .on_recovery = [&mailbox](const EngineRecovery& r) { mailbox.put(r); },
                      .on_wait = [&mailbox](const EngineWait& w) { mailbox.put(w); },
                      .on_domain =
                          [&mailbox, &cluster = *session->cluster_](const EngineDomainChange& c) {
                            cluster.tell_state(serving_domains(c.serving, c.all));
                            mailbox.put(c);
                          }}));
  if (plan.engine.elastic) {
    const std::int32_t domains = plan.mesh.step_domains();
    session->cluster_->tell_state(serving_domains(domains, domains));
  }
  session->cluster_->on_drain([&cluster = *session->cluster_, &engine = *session->engine_,
                               keep_going = session->keep_going()](const std::string& node) {
    return drain_node(cluster, engine, node, keep_going);
  });
  return session;
}

EngineSession::~EngineSession() { shutdown(); }

void EngineSession::shutdown() {
  is_ending_ = true;
  if (cluster_) cluster_->shutdown(shutdown_limit);
}

Result<EngineInfo> EngineSession::wait_until_ready(const std::function<bool()>& keep_waiting) {
  const auto nothing = [](const EngineReport&) {};
  while (true) {
    auto started = engine_->started(tick);
    if (started && started->ok()) return *std::move(started);
    // Not left to the start, which may meanwhile wait for another worker's load.
    auto content = mailbox_.take(started ? cause_wait : std::chrono::milliseconds(0));
    if (!content.downs.empty()) return cause_of(std::move(content.downs), nothing);
    // Told at the end of the start, for whoever takes from then on.
    for (const EngineDomainChange& change : content.domain_changes) mailbox_.put(change);
    if (started) return std::move(*started).error();
    if (!keep_waiting()) return fail(ErrorCode::cancelled, "stopped before the model was loaded");
  }
}

Error EngineSession::cause_of(std::vector<ActorDown> downs,
                              const std::function<void(const EngineReport&)>& on_report) {
  const auto until = Clock::now() + cause_wait;
  for (auto left = cause_wait; left.count() > 0;
       left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now())) {
    Mailbox::Content content = mailbox_.take(left);
    for (const EngineReport& report : content.reports) on_report(report);
    for (ActorDown& down : content.downs) downs.push_back(std::move(down));
  }
  return {ErrorCode::peer_died, describe_end(troupe::cause_of(downs))};
}

std::size_t request_window(const EngineSpec& engine, std::int32_t serving, std::int32_t domains) {
  const std::int32_t replicas =
      engine.data_parallel_size / std::max(1, domains) * std::max(1, serving);
  return static_cast<std::size_t>(replicas) *
         (static_cast<std::size_t>(engine.max_num_seqs) * 2 + 64);
}

}  // namespace troupe
