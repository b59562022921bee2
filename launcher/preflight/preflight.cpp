#include "launcher/preflight/preflight.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "actors/preflight/node_probe.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Up to so many nodes every pair is probed.
constexpr std::size_t all_pairs_nodes = 64;
/// For a probe's process to start, and for it to gather its facts.
constexpr milliseconds answer_limit{20000};
constexpr milliseconds clock_limit{4000};
constexpr int clock_readings = 4;
/// How often the user's wish to stop is looked at.
constexpr milliseconds wait_turn{100};

/// The probes of one node.
struct Probe {
  Future<ActorHandle<ProbeTarget>> target_made;
  Future<ActorHandle<NodeProbe>> probe_made;
  ActorHandle<ProbeTarget> target;
  ActorHandle<NodeProbe> probe;
};

/// The name of a copy: the folder's, and a hash of what is in it.
std::string stage_name(const CheckpointFacts& own) {
  std::string marks;
  for (const CheckpointFile& file : own.files) marks += file.name + ": " + file.mark + "\n";
  const auto folder = std::filesystem::absolute(own.folder).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return fmt::format("{}-{:016x}", name.string(), hash_128(marks).first);
}

class Preflight {
 public:
  Preflight(Cluster& cluster, PreflightNeeds needs, const KeepGoing& keep_going)
      : cluster_(cluster), needs_(std::move(needs)), keep_going_(keep_going) {}

  Result<PreflightReport> run();

 private:
  void start_probes();
  Result<void> wait_for_probes();
  Result<void> gather();
  void read_clock(std::size_t node);
  Result<void> measure_links();
  void leave();
  void look_at_own_checkpoints() {
    for (auto& own : needs_.checkpoints) own = look_at_checkpoint(own.folder);
  }
  template <class T>
  Result<Result<T>> wait_for(Future<T>& future, Clock::time_point until);
  void give_up(std::size_t node, const Error& why) {
    if (nodes_[node].problem.empty()) {
      nodes_[node].problem = "it could not be looked at (" + why.message + ")";
    }
  }

  Cluster& cluster_;
  PreflightNeeds needs_;
  const KeepGoing& keep_going_;
  std::vector<ProbedNode> nodes_;
  std::vector<Probe> probes_;
};

/// The future's result, or a timeout; the error is that the user wants to stop.
template <class T>
Result<Result<T>> Preflight::wait_for(Future<T>& future, Clock::time_point until) {
  while (!future.wait(wait_turn)) {
    if (keep_going_ && !keep_going_()) {
      return fail(ErrorCode::cancelled, "stopped while the nodes were looked at");
    }
    if (Clock::now() >= until) {
      return Result<T>(fail(ErrorCode::timeout, "no answer within {} ms", answer_limit.count()));
    }
  }
  return future.get(milliseconds(0));
}

void Preflight::start_probes() {
  for (const Cluster::NodeInfo& node : cluster_.nodes()) {
    const std::string& name = node.spec.name;
    SpawnOptions options{.node = name, .process = "preflight-" + name};
    nodes_.push_back(
        {.name = name, .address = node.address, .facts = {}, .links = {}, .problem = {}});
    probes_.push_back(
        {cluster_.spawn<ProbeTarget>(options), cluster_.spawn<NodeProbe>(options), {}, {}});
  }
}

Result<void> Preflight::wait_for_probes() {
  const auto until = Clock::now() + answer_limit;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    TROUPE_TRY(auto target, wait_for(probes_[i].target_made, until));
    TROUPE_TRY(auto probe, wait_for(probes_[i].probe_made, until));
    if (!target.ok()) give_up(i, target.error());
    if (!probe.ok()) give_up(i, probe.error());
    if (target.ok()) probes_[i].target = *target;
    if (probe.ok()) probes_[i].probe = *probe;
  }
  return {};
}

Result<void> Preflight::gather() {
  FactsRequest request;
  for (const auto& checkpoint : needs_.checkpoints) {
    request.checkpoints.push_back(checkpoint.folder);
  }
  request.with_gpus =
      std::ranges::any_of(needs_.nodes, [](const NodeNeeds& node) { return node.gpus > 0; });
  if (!needs_.stage_folder.empty()) {
    // A copy's name depends on the content.
    look_at_own_checkpoints();
    request.stage_folder = needs_.stage_folder;
    for (const auto& own : needs_.checkpoints) request.stage_names.push_back(stage_name(own));
  }
  std::vector<Future<NodeFacts>> asked;
  for (const Probe& probe : probes_) asked.push_back(probe.probe.call<&NodeProbe::facts>(request));
  if (needs_.stage_folder.empty()) look_at_own_checkpoints();
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (nodes_[i].problem.empty()) read_clock(i);
  }
  const auto until = Clock::now() + answer_limit;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    TROUPE_TRY(auto facts, wait_for(asked[i], until));
    if (!facts.ok()) {
      give_up(i, facts.error());
    } else {
      nodes_[i].facts = *std::move(facts);
    }
  }
  return {};
}

/// Of several readings the one with the shortest way there and back is the most exact.
void Preflight::read_clock(std::size_t node) {
  const auto since_1970 = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  for (int i = 0; i < clock_readings; ++i) {
    const double before = since_1970();
    const auto there = probes_[node].target.call<&ProbeTarget::clock_ns>().get(clock_limit);
    const double after = since_1970();
    if (!there.ok()) return give_up(node, there.error());
    const double error = (after - before) / 2;
    if (i > 0 && error >= nodes_[node].clock_error) continue;
    nodes_[node].clock_error = error;
    nodes_[node].clock_ahead = static_cast<double>(*there) / 1e9 - (before + after) / 2;
  }
}

Result<void> Preflight::measure_links() {
  std::vector<std::vector<std::size_t>> peers(probes_.size());
  std::vector<Future<std::vector<LinkFacts>>> asked;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    std::vector<ProbedPeer> asked_peers;
    for (const std::size_t peer : probed_peers(i, probes_.size())) {
      if (!nodes_[peer].problem.empty()) continue;
      peers[i].push_back(peer);
      asked_peers.push_back({probes_[peer].target, nodes_[peer].address == nodes_[i].address});
    }
    asked.push_back(probes_[i].probe.call<&NodeProbe::measure>(asked_peers));
  }
  const auto until = Clock::now() + answer_limit;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    TROUPE_TRY(auto links, wait_for(asked[i], until));
    if (!links.ok()) {
      give_up(i, links.error());
      continue;
    }
    for (std::size_t j = 0; j < std::min(links->size(), peers[i].size()); ++j) {
      nodes_[i].links.push_back({nodes_[peers[i][j]].name, (*links)[j]});
    }
  }
  return {};
}

void Preflight::leave() {
  for (const Probe& probe : probes_) {
    if (probe.probe) probe.probe.call<&NodeProbe::leave>();
    if (probe.target) probe.target.call<&ProbeTarget::leave>();
  }
}

Result<PreflightReport> Preflight::run() {
  const auto begin = Clock::now();
  start_probes();
  TROUPE_CHECK(wait_for_probes());
  TROUPE_CHECK(gather());
  TROUPE_CHECK(measure_links());
  leave();
  PreflightReport report;
  report.table = preflight_table(needs_, nodes_);
  report.findings = judge_nodes(needs_, nodes_);
  report.needs = std::move(needs_);
  report.nodes = std::move(nodes_);
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

}  // namespace

Result<PreflightReport> run_preflight(Cluster& cluster, PreflightNeeds needs,
                                      const KeepGoing& keep_going) {
  return Preflight(cluster, std::move(needs), keep_going).run();
}

std::string describe(const PreflightReport& report) {
  return fmt::format("{} node{} looked at in {:.2f} s", report.nodes.size(),
                     report.nodes.size() == 1 ? "" : "s", report.seconds);
}

Result<void> check_preflight(const PreflightReport& report) {
  std::string lines;
  for (const Finding& finding : report.findings) {
    if (finding.is_fatal) lines += (lines.empty() ? "" : "\n") + describe(finding);
  }
  if (lines.empty()) return {};
  return fail(ErrorCode::unsupported, "{}", lines);
}

std::vector<std::size_t> probed_peers(std::size_t node, std::size_t nodes) {
  std::vector<std::size_t> peers;
  for (std::size_t distance = 1; distance < nodes;
       distance = nodes <= all_pairs_nodes ? distance + 1 : distance * 2) {
    peers.push_back((node + distance) % nodes);
  }
  return peers;
}

}  // namespace troupe
