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
/// For a node to measure its links.
constexpr milliseconds measure_limit{20000};
/// How long one node is waited for before the others are looked at again.
constexpr milliseconds look_turn{5};
/// How often the user's wish to stop is looked at.
constexpr milliseconds wait_turn{100};

/// The name of a copy: the folder's, and a hash of what is in it.
std::string stage_name(const CheckpointFacts& own) {
  std::string marks;
  for (const CheckpointFile& file : own.files) marks += file.name + ": " + file.mark + "\n";
  const auto folder = std::filesystem::absolute(own.folder).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return fmt::format("{}-{:016x}", name.string(), hash_128(marks).first);
}

Result<void> check(const KeepGoing& keep_going) {
  if (!keep_going || keep_going()) return {};
  return fail(ErrorCode::cancelled, "stopped while the nodes were looked at");
}

}  // namespace

void Preflight::look_at_own_checkpoints() {
  for (auto& own : needs_.checkpoints) own = look_at_checkpoint(own.folder);
}

const FactsRequest& Preflight::request() {
  if (request_) return *request_;
  look_at_own_checkpoints();
  request_.emplace();
  for (const auto& checkpoint : needs_.checkpoints) {
    request_->checkpoints.push_back(checkpoint.folder);
  }
  request_->with_gpus =
      needs_.leaves_gpus ||
      std::ranges::any_of(needs_.nodes, [](const NodeNeeds& node) { return node.gpus > 0; });
  if (needs_.stage_folder.empty()) return *request_;
  request_->stage_folder = needs_.stage_folder;
  for (const auto& own : needs_.checkpoints) request_->stage_names.push_back(stage_name(own));
  return *request_;
}

NodeVerdict Preflight::look_at(Cluster& cluster, const JoinedNode& node) {
  looks_.resize(std::max(looks_.size(), node.index + 1));
  Look& look = looks_[node.index];
  if (!look.look || look.arrival != node.arrival) {
    look = {node.arrival, std::make_unique<NodeLook>(cluster, node.name, node.address)};
  }
  if (!look.look->go_on(request(), milliseconds(0))) return {NodeVerdict::Kind::pending};
  std::string against = judge_alone(node.index);
  if (against.empty()) return {NodeVerdict::Kind::welcome};
  return {NodeVerdict::Kind::refused, std::move(against)};
}

ProbedNode Preflight::take(std::size_t index) {
  const Look look = std::exchange(looks_.at(index), Look{});
  look.look->leave();
  return look.look->node();
}

std::string Preflight::judge_alone(std::size_t index) const {
  PreflightNeeds needs = needs_;
  needs.nodes.clear();
  if (index < needs_.nodes.size()) needs.nodes.push_back(needs_.nodes[index]);
  std::string text;
  for (const Finding& finding : troupe::judge_nodes(needs, {&looks_[index].look->node(), 1})) {
    if (!finding.is_fatal) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", finding.what, finding.remedy);
  }
  return text;
}

Result<void> Preflight::measure_links(const KeepGoing& keep_going) {
  std::vector<std::vector<std::size_t>> peers(looks_.size());
  std::vector<std::optional<Future<std::vector<LinkFacts>>>> asked(looks_.size());
  for (std::size_t i = 0; i < looks_.size(); ++i) {
    const NodeLook& look = *looks_[i].look;
    if (!look.node().problem.empty()) continue;
    std::vector<ProbedPeer> targets;
    for (const std::size_t peer : probed_peers(i, looks_.size())) {
      const NodeLook& other = *looks_[peer].look;
      if (!other.node().problem.empty()) continue;
      peers[i].push_back(peer);
      targets.push_back({other.target(), other.node().address == look.node().address});
    }
    asked[i] = look.probe().call<&NodeProbe::measure>(targets);
  }
  Deadline deadline(measure_limit);
  for (std::size_t i = 0; i < looks_.size(); ++i) {
    if (!asked[i]) continue;
    while (!asked[i]->wait(wait_turn) && !deadline.is_over()) TROUPE_CHECK(check(keep_going));
    ProbedNode& node = looks_[i].look->node();
    const auto links = asked[i]->get(milliseconds(0));
    if (!links.ok()) {
      node.problem = "its links could not be looked at (" + links.error().message + ")";
      continue;
    }
    for (std::size_t j = 0; j < std::min(links->size(), peers[i].size()); ++j) {
      node.links.push_back({looks_[peers[i][j]].look->node().name, (*links)[j]});
    }
  }
  return {};
}

Result<PreflightReport> Preflight::finish(Cluster& cluster, const KeepGoing& keep_going) {
  const auto begin = Clock::now();
  auto nodes = cluster.nodes();
  std::erase_if(nodes, [](const Cluster::NodeInfo& node) { return node.spec.joins_later; });
  looks_.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (looks_[i].look) continue;
    looks_[i].look = std::make_unique<NodeLook>(cluster, nodes[i].spec.name, nodes[i].address);
  }
  const auto all_are_done = [&] {
    bool is_first = true, done = true;
    for (const Look& look : looks_) {
      if (look.look->go_on(request(), is_first ? look_turn : milliseconds(0))) continue;
      is_first = done = false;
    }
    return done;
  };
  while (!all_are_done()) TROUPE_CHECK(check(keep_going));
  TROUPE_CHECK(measure_links(keep_going));
  PreflightReport report;
  for (const Look& look : looks_) {
    look.look->leave();
    report.nodes.push_back(std::move(look.look->node()));
  }
  report.table = preflight_table(needs_, report.nodes);
  report.findings = judge_nodes(needs_, report.nodes);
  report.needs = std::move(needs_);
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
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
