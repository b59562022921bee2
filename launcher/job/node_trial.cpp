#include "launcher/job/node_trial.hpp"

#include <utility>

#include <fmt/format.h>

#include "launcher/staging/staging.hpp"

namespace troupe {

void NodeTrial::set_folders(std::vector<std::string> folders) {
  const std::lock_guard lock(mutex_);
  folders_ = std::move(folders);
}

bool NodeTrial::can_judge() const {
  const std::lock_guard lock(mutex_);
  return preflight_.needs().stage_folder.empty() || folders_;
}

NodeVerdict NodeTrial::judge(Cluster& cluster, const JoinedNode& node) {
  if (!can_judge()) return {NodeVerdict::Kind::pending};
  NodeVerdict verdict = preflight_.look_at(cluster, node);
  if (verdict.kind == NodeVerdict::Kind::pending) return verdict;
  ProbedNode found = preflight_.take(node.index);
  if (verdict.kind == NodeVerdict::Kind::refused) return verdict;
  if (std::string against = stage(cluster, std::move(found)); !against.empty()) {
    return {NodeVerdict::Kind::refused, std::move(against)};
  }
  return verdict;
}

std::string NodeTrial::stage(Cluster& cluster, ProbedNode node) {
  std::vector<std::string> folders;
  {
    const std::lock_guard lock(mutex_);
    folders = folders_.value_or(std::vector<std::string>());
  }
  if (folders.empty()) return "";
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const std::string there = i < node.facts.staged.size() ? node.facts.staged[i].folder : "";
    if (there == folders[i]) continue;
    return fmt::format(
        "its cache is {}, that of the others is {}: set model.stage_folder to a path "
        "that is the same everywhere",
        there, folders[i]);
  }
  PreflightReport report;
  report.needs = preflight_.needs();
  report.nodes.push_back(std::move(node));
  const auto staged = stage_checkpoints(
      cluster, report,
      [this](std::uint64_t, std::uint64_t, std::size_t) { return !keep_going_ || keep_going_(); });
  return staged.ok() ? "" : staged.error().message;
}

}  // namespace troupe
