#include "runtime/actor/cluster_observer.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <fmt/ranges.h>
#include <unistd.h>

#include "runtime/base/host_name.hpp"
#include "runtime/base/log.hpp"
#include "runtime/link/link_peer.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/state/log_file.hpp"

namespace troupe {
namespace {

/// A mask of /proc/self/status: of the main thread, in which programs block signals before they
/// start others.
std::uint64_t signal_mask(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":\t")) continue;
    const std::string digits = line.substr(name.size() + 2);
    std::uint64_t mask = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), mask, 16);
    return mask;
  }
  return 0;
}

StatusReply::AtSigterm at_sigterm() {
  constexpr std::uint64_t bit = std::uint64_t{1} << (SIGTERM - 1);
  if ((signal_mask("SigIgn") & bit) != 0) return StatusReply::AtSigterm::ignores;
  const bool handles = ((signal_mask("SigCgt") | signal_mask("SigBlk")) & bit) != 0;
  return handles ? StatusReply::AtSigterm::handles : StatusReply::AtSigterm::dies;
}

LogPiece piece_of(std::string path, std::string shared_with) {
  LogPiece piece;
  piece.path = std::move(path);
  piece.shared_with = std::move(shared_with);
  return piece;
}

StateReply reply_of(const Result<std::string>& changed) {
  if (!changed.ok()) return StateRefusal{changed.error().code, changed.error().message};
  return ChangeReply{*changed};
}

StateReply not_offered() {
  return StateRefusal{ErrorCode::unsupported,
                      "this program neither lets nodes go nor takes some in, or is not ready for "
                      "that yet"};
}

}  // namespace

void ClusterObserver::start(const std::string& job_id) {
  if (!options_.is_observable) return;
  const auto started = [&]() -> Result<void> {
    const std::string folder_given = options_.state_folder;
    TROUPE_TRY(const std::string folder,
               folder_given.empty() ? cluster_folder() : Result<std::string>(folder_given));
    ClusterFile file{.protocol = state_protocol, .name = options_.name, .id = job_id};
    TROUPE_TRY(file.program, own_program());
    if (file.name.empty()) file.name = std::filesystem::path(file.program).filename().string();
    file.host = host_name();
    TROUPE_TRY(file.driver, own_process_mark());
    file.since_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
    file.address = agents_.address();
    const LinkPeer observer{observer_role, observer_name};
    file.key = SecretKey(link_key(keys_, {"driver", "job"}, observer));
    file.port = agents_.admit_observer(observer, file.key.bytes, server_.link_events());
    TROUPE_TRY(published_, PublishedCluster::publish(folder, file));
    return {};
  }();
  if (!started.ok()) {
    log::warning("`troupe status` will not find this cluster: {}", started.error().message);
  }
}

StateReply ClusterObserver::answer(const StateRequest& request) const {
  return std::visit([this](const auto& ask) { return answer_to(ask); }, request);
}

StateReply ClusterObserver::answer_to(const AskStatus&) const {
  StatusReply reply;
  for (const auto& node : agents_.infos()) {
    ++(node.alive                  ? reply.nodes_alive
       : node.was_drained          ? reply.nodes_drained
       : node.lost_because.empty() ? reply.nodes_awaited
                                   : reply.nodes_lost);
  }
  const auto counts = registry_.counts();
  reply.actors = counts.actors;
  reply.actors_restarting = counts.restarting;
  reply.placement_groups = counts.placement_groups;
  reply.at_sigterm = at_sigterm();
  reply.job_folder = options_.job_folder;
  reply.log_folder = options_.log_folder;
  const std::lock_guard lock(changes_mutex_);
  reply.program_state = program_state_;
  return reply;
}

StateReply ClusterObserver::answer_to(const AskNodes& ask) const {
  NodesReply reply;
  const std::size_t first = std::min<std::uint64_t>(ask.after, agents_.size());
  const auto infos = agents_.infos(first, max_page);
  reply.is_last = first + infos.size() == agents_.size();
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const Cluster::NodeInfo& info = infos[i];
    NodeState state{.name = info.spec.name,
                    .host = info.host,
                    .address = info.address,
                    .lost_because = info.lost_because,
                    .agent_pid = info.agent_pid,
                    .total = info.spec.capacity(),
                    .free = {},
                    .log_path = logs_.of_agent(info.spec.name)};
    if (info.alive) state.life = NodeState::Life::alive;
    if (!info.alive && !info.lost_because.empty()) state.life = NodeState::Life::lost;
    if (info.was_drained) state.life = NodeState::Life::drained;
    if (info.alive) state.free = registry_.free_on(first + i);
    reply.nodes.push_back(std::move(state));
  }
  return reply;
}

Result<LogPiece> ClusterObserver::log_of(const std::string& what) const {
  const auto or_stderr = [](const std::string& path) {
    return path.empty() ? stderr_path() : path;
  };
  const auto of_node = [this](const std::string& node) {
    return logs_.one_for_node ? node : std::string();
  };
  if (what == "driver") {
    const std::string path = log::destination();
    return piece_of(path == log::to_stderr ? stderr_path() : path, "");
  }
  for (const auto& node : agents_.infos()) {
    if (node.spec.name == what) return piece_of(or_stderr(logs_.of_agent(what)), of_node(what));
  }
  if (const auto log = registry_.log_of(what)) {
    return piece_of(or_stderr(log->path), of_node(log->node));
  }
  return fail(ErrorCode::not_found,
              "no node and no actor, living or lately ended, is named '{}': {}", what,
              registry_.missing(what).message);
}

StateReply ClusterObserver::answer_to(const AskLog& ask) const {
  auto piece = log_of(ask.of);
  if (!piece.ok()) return StateRefusal{piece.error().code, piece.error().message};
  if (piece->path.empty()) {
    return StateRefusal{ErrorCode::not_found,
                        fmt::format("'{}' logs to the stderr of {}, which is no file", ask.of,
                                    options_.join ? "the agent that joined" : "the driver")};
  }
  auto read = read_log_piece(*std::move(piece), ask);
  if (!read.ok()) return StateRefusal{read.error().code, read.error().message};
  return *std::move(read);
}

StateReply ClusterObserver::answer_to(const AskStop& ask) const {
  log::warning("{} asks this cluster to end: SIGTERM", ask.from);
  ::kill(::getpid(), SIGTERM);
  return StopReply{};
}

void ClusterObserver::on_drain(Cluster::DrainNode drain) {
  const std::lock_guard lock(changes_mutex_);
  drain_ = std::move(drain);
}

void ClusterObserver::on_join(Cluster::JoinHosts join) {
  const std::lock_guard lock(changes_mutex_);
  join_ = std::move(join);
}

void ClusterObserver::tell_state(std::string state) {
  const std::lock_guard lock(changes_mutex_);
  program_state_ = std::move(state);
}

StateReply ClusterObserver::answer_to(const AskDrain& ask) const {
  Cluster::DrainNode drain;
  {
    const std::lock_guard lock(changes_mutex_);
    drain = drain_;
  }
  if (!drain) return not_offered();
  log::warning("{} asks this cluster to let node '{}' go", ask.from, ask.node);
  return reply_of(drain(ask.node));
}

StateReply ClusterObserver::answer_to(const AskJoin& ask) const {
  Cluster::JoinHosts join;
  {
    const std::lock_guard lock(changes_mutex_);
    join = join_;
  }
  if (!join) return not_offered();
  std::string what = ask.hosts.empty() ? "nodes" : fmt::format("{}", fmt::join(ask.hosts, ", "));
  if (!ask.slurm_job.empty()) what += " from Slurm's job " + ask.slurm_job;
  log::warning("{} asks this cluster to take in {}", ask.from, what);
  return reply_of(join({ask.hosts, ask.slurm_job, ask.slurm_nodes}));
}

StateReply ClusterObserver::answer_to(const AskStack& ask) const {
  auto stack = insight_.stack(ask.of);
  if (!stack.ok()) return StateRefusal{stack.error().code, stack.error().message};
  return *std::move(stack);
}

StateReply ClusterObserver::answer_to(const AskTimeline& ask) const {
  switch (ask.step) {
    case AskTimeline::Step::start:
      return TimelineReply{insight_.start_timeline(
                               std::chrono::milliseconds(std::max<std::int64_t>(0, ask.limit_ms))),
                           {}};
    case AskTimeline::Step::stop:
      insight_.stop_timeline();
      return TimelineReply{};
    case AskTimeline::Step::take:
      break;
  }
  auto taken = insight_.take_timeline(ask.node, ask.process);
  if (!taken.ok()) return StateRefusal{taken.error().code, taken.error().message};
  return TimelineReply{{}, *std::move(taken)};
}

}  // namespace troupe
