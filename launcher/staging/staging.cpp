#include "launcher/staging/staging.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "actors/staging/checkpoint_actors.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds start_limit{20000};
/// How often the progress is told.
constexpr milliseconds wait_turn{200};

/// A node that lacks a checkpoint in its stage folder.
struct Receiver {
  const ProbedNode* node = nullptr;
  ActorHandle<CheckpointCopier> copier;
  std::size_t leader = 0;  ///< the receiver that serves the folder, which both share; often itself
};

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
  Result<void> start_copiers();
  Result<void> find_leaders();
  void deliver(std::size_t checkpoint);
  void check(std::size_t checkpoint);
  Result<void> wait();
  Result<void> tell_progress();
  template <class T>
  Result<T> get(const Receiver& receiver, Future<T>& future);
  CheckpointPlace place(const Receiver& receiver, std::size_t checkpoint) const {
    return place_of(checkpoints()[checkpoint], receiver.node->facts, checkpoint);
  }
  const std::vector<CheckpointFacts>& checkpoints() const { return report_.needs.checkpoints; }

  Cluster& cluster_;
  const PreflightReport& report_;
  const StagingProgress& progress_;
  ActorHandle<CheckpointSource> source_;
  std::vector<Receiver> receivers_;
  std::vector<Delivery> deliveries_;
  std::size_t copies_ = 0;
  std::uint64_t total_bytes_ = 0;
};

Result<void> Staging::start_source() {
  std::vector<std::string> folders;
  for (const auto& checkpoint : checkpoints()) folders.push_back(checkpoint.folder);
  TROUPE_TRY(
      source_,
      cluster_.spawn_local<CheckpointSource>({.name = "checkpoints"}, folders).get(start_limit));
  return {};
}

/// Waits for a short answer of a receiver, and tells the progress meanwhile.
template <class T>
Result<T> Staging::get(const Receiver& receiver, Future<T>& future) {
  Deadline deadline(start_limit);
  while (!future.wait(wait_turn)) {
    TROUPE_CHECK(tell_progress());
    if (deadline.is_over()) {
      return fail(ErrorCode::timed_out, "{}: no answer within {} ms", receiver.node->name,
                  start_limit.count());
    }
  }
  auto got = future.get(milliseconds(0));
  if (got.ok()) return got;
  return fail(got.error().code, "{}: {}", receiver.node->name, got.error().message);
}

Result<void> Staging::start_copiers() {
  std::vector<Future<ActorHandle<CheckpointCopier>>> started;
  for (const ProbedNode& node : report_.nodes) {
    Receiver receiver{.node = &node, .copier = {}};
    for (std::size_t i = 0; i < checkpoints().size(); ++i) {
      if (place(receiver, i) == CheckpointPlace::staged) continue;
      receivers_.push_back(receiver);
      started.push_back(cluster_.spawn<CheckpointCopier>({.node = node.name}));
      break;
    }
  }
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    TROUPE_TRY(receivers_[i].copier, get(receivers_[i], started[i]));
  }
  return {};
}

/// The first of the receivers that share a stage folder serves it.
Result<void> Staging::find_leaders() {
  const auto folder_of = [](const Receiver& receiver) {
    return std::filesystem::path(receiver.node->facts.staged.front().folder).parent_path().string();
  };
  std::vector<Future<std::string>> marked;
  for (const Receiver& receiver : receivers_) {
    marked.push_back(receiver.copier.call<&CheckpointCopier::mark>(folder_of(receiver)));
  }
  std::vector<std::string> marks;
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    TROUPE_TRY(marks.emplace_back(), get(receivers_[i], marked[i]));
  }
  std::vector<Future<std::vector<std::string>>> looked;
  for (const Receiver& receiver : receivers_) {
    looked.push_back(receiver.copier.call<&CheckpointCopier::marks_in>(folder_of(receiver), marks));
  }
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    TROUPE_TRY(const auto seen, get(receivers_[i], looked[i]));
    const auto first = seen.empty() ? marks.begin() + static_cast<std::ptrdiff_t>(i)
                                    : std::ranges::find(marks, seen.front());
    const auto leader = static_cast<std::size_t>(first - marks.begin());
    receivers_[i].leader = leader < i ? receivers_[leader].leader : i;
  }
  return {};
}

/// Starts the deliveries of a checkpoint: one to each folder where it is lacking. A link does only
/// where all that share the folder have the checkpoint in the same place.
void Staging::deliver(std::size_t checkpoint) {
  const CheckpointFacts& sent = checkpoints()[checkpoint];
  std::vector<CheckpointPlace> places(receivers_.size(), CheckpointPlace::staged);
  for (const Receiver& receiver : receivers_) {
    places[receiver.leader] = std::max(places[receiver.leader], place(receiver, checkpoint));
  }
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    const Receiver& receiver = receivers_[i];
    const std::string& target = receiver.node->facts.staged[checkpoint].folder;
    if (receiver.leader != i || places[i] == CheckpointPlace::staged) continue;
    if (places[i] == CheckpointPlace::own) {
      deliveries_.push_back({receiver.node->name,
                             receiver.copier.call<&CheckpointCopier::link>(sent.folder, target)});
      continue;
    }
    ++copies_;
    total_bytes_ += total_bytes(sent);
    deliveries_.push_back(
        {receiver.node->name, receiver.copier.call<&CheckpointCopier::copy>(
                                  source_, std::uint64_t{checkpoint}, sent.files, target)});
  }
}

/// Lets the nodes that another one has served wait until they see it.
void Staging::check(std::size_t checkpoint) {
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    const Receiver& receiver = receivers_[i];
    if (receiver.leader == i) continue;
    deliveries_.push_back(
        {receiver.node->name,
         receiver.copier.call<&CheckpointCopier::wait_for_copy>(
             checkpoints()[checkpoint].files, receiver.node->facts.staged[checkpoint].folder)});
  }
}

Result<void> Staging::tell_progress() {
  if (!progress_) return {};
  const auto given = source_.call<&CheckpointSource::given_bytes>().get(start_limit);
  if (progress_(given.ok() ? *given : 0, total_bytes_, copies_)) return {};
  return fail(ErrorCode::cancelled, "stopped while the checkpoint was copied");
}

/// Each delivery ends by itself: a copier gives up if its next piece does not come.
Result<void> Staging::wait() {
  std::string failures;
  for (Delivery& delivery : std::exchange(deliveries_, {})) {
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
  TROUPE_CHECK(start_copiers());
  TROUPE_CHECK(find_leaders());
  for (std::size_t i = 0; i < checkpoints().size(); ++i) deliver(i);
  TROUPE_CHECK(wait());
  for (std::size_t i = 0; i < checkpoints().size(); ++i) check(i);
  TROUPE_CHECK(wait());
  if (copies_ > 0) {
    const auto given = source_.call<&CheckpointSource::given_bytes>().get(start_limit);
    log::info("copied the checkpoint {} time{} for {} nodes, {} bytes in all", copies_,
              copies_ == 1 ? "" : "s", receivers_.size(), given.ok() ? *given : 0);
  }
  for (const Receiver& receiver : receivers_) receiver.copier.call<&CheckpointCopier::leave>();
  (void)cluster_.stop(source_);
  return folders;
}

}  // namespace

Result<std::vector<std::string>> stage_checkpoints(Cluster& cluster, const PreflightReport& report,
                                                   const StagingProgress& progress) {
  return Staging(cluster, report, progress).run();
}

}  // namespace troupe
