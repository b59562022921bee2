#include "launcher/staging/staging.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "actors/staging/checkpoint_actors.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds start_limit{20000};
/// How often the progress is told.
constexpr milliseconds wait_turn{200};

/// One checkpoint on its way to one node.
struct Delivery {
  std::string node;
  Future<void> done;
};

class Staging {
 public:
  Staging(Cluster& cluster, const PreflightReport& report, const StagingProgress& progress)
      : cluster_(cluster), report_(report), progress_(progress) {}

  Result<std::vector<std::string>> run();

 private:
  Result<void> start_source();
  Result<void> serve(const ProbedNode& node);
  Result<void> wait();
  Result<void> tell_progress();

  Cluster& cluster_;
  const PreflightReport& report_;
  const StagingProgress& progress_;
  ActorHandle<CheckpointSource> source_;
  std::vector<ActorHandle<CheckpointCopier>> copiers_;
  std::vector<Delivery> deliveries_;
  std::uint64_t total_bytes_ = 0;
};

Result<void> Staging::start_source() {
  std::vector<std::string> folders;
  for (const auto& checkpoint : report_.needs.checkpoints) folders.push_back(checkpoint.folder);
  TROUPE_TRY(
      source_,
      cluster_.spawn_local<CheckpointSource>({.name = "checkpoints"}, folders).get(start_limit));
  return {};
}

/// Starts the deliveries of what a node lacks.
Result<void> Staging::serve(const ProbedNode& node) {
  const auto& checkpoints = report_.needs.checkpoints;
  ActorHandle<CheckpointCopier> copier;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointPlace place = place_of(checkpoints[i], node.facts, i);
    if (place == CheckpointPlace::staged) continue;
    if (!copier) {
      auto made = cluster_.spawn<CheckpointCopier>({.node = node.name}).get(start_limit);
      if (!made.ok()) {
        return fail(made.error().code, "{}: {}", node.name, made.error().message);
      }
      copier = *made;
      copiers_.push_back(copier);
    }
    const std::string& target = node.facts.staged[i].folder;
    if (place == CheckpointPlace::own) {
      deliveries_.push_back(
          {node.name, copier.call<&CheckpointCopier::link>(checkpoints[i].folder, target)});
      continue;
    }
    total_bytes_ += total_bytes(checkpoints[i]);
    deliveries_.push_back(
        {node.name, copier.call<&CheckpointCopier::copy>(source_, std::uint64_t{i},
                                                         checkpoints[i].files, target)});
  }
  return {};
}

Result<void> Staging::tell_progress() {
  if (!progress_) return {};
  const auto given = source_.call<&CheckpointSource::given_bytes>().get(start_limit);
  if (progress_(given.ok() ? *given : 0, total_bytes_, copiers_.size())) return {};
  return fail(ErrorCode::cancelled, "stopped while the checkpoint was copied");
}

/// Each delivery ends by itself: a copier gives up if its next piece does not come.
Result<void> Staging::wait() {
  std::string failures;
  for (Delivery& delivery : deliveries_) {
    while (!delivery.done.wait(wait_turn)) TROUPE_CHECK(tell_progress());
    const auto done = delivery.done.get(milliseconds(0));
    if (done.ok()) continue;
    failures += fmt::format("{}{}: the checkpoint could not be copied: {}",
                            failures.empty() ? "" : "\n", delivery.node, done.error().message);
  }
  if (failures.empty()) return {};
  return fail(ErrorCode::io, "{}", failures);
}

Result<std::vector<std::string>> Staging::run() {
  std::vector<std::string> folders;
  if (report_.nodes.empty()) return folders;
  for (const auto& staged : report_.nodes.front().facts.staged) folders.push_back(staged.folder);
  TROUPE_CHECK(start_source());
  for (const ProbedNode& node : report_.nodes) TROUPE_CHECK(serve(node));
  TROUPE_CHECK(wait());
  for (const auto& copier : copiers_) copier.call<&CheckpointCopier::leave>();
  (void)cluster_.stop(source_);
  return folders;
}

}  // namespace

Result<std::vector<std::string>> stage_checkpoints(Cluster& cluster, const PreflightReport& report,
                                                   const StagingProgress& progress) {
  return Staging(cluster, report, progress).run();
}

}  // namespace troupe
