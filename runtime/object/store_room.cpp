#include <cstring>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/available_memory.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/read_all_at.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/object/store_impl.hpp"

namespace troupe {

// Room for segments: the node's limit, spilling and restoring.

namespace {

constexpr std::chrono::seconds room_timeout{30};  ///< for another process to spill

}  // namespace

Result<NodeLedger*> StoreImpl::ledger() {
  const std::lock_guard lock(shared_ledger_->mutex);
  if (ledger_ != nullptr) return ledger_.load();
  std::uint64_t limit = options_.node_bytes;
  if (limit == 0) limit = available_memory_bytes().value_or(std::uint64_t{4} << 30) / 10 * 3;
  TROUPE_TRY(auto fd, options_.ledger_memory(NodeLedger::bytes_needed()));
  TROUPE_TRY(auto memory, SharedMemory::map(std::move(fd)));
  TROUPE_TRY(shared_ledger_->owned,
             NodeLedger::join(std::move(memory), limit, options_.process_name, endpoint_));
  {
    const std::lock_guard inner(servers_mutex_);
    TROUPE_TRY(
        segment_server_,
        SegmentServer::start(options_.keys.name + "-o", pool_,
                             {[this](const SegmentAsk& ask) { return pin_at_once(ask); },
                              [this](const SegmentAsk& ask) { unpin_of(ask.reader, ask.pin); }}));
  }
  ledger_ = shared_ledger_->owned.get();
  return ledger_.load();
}

void StoreImpl::tell_ledger() {
  metrics_.bytes_in_memory.set(static_cast<double>(held_.bytes_in_memory()));
  metrics_.bytes_spilled.set(static_cast<double>(held_.bytes_spilled()));
  NodeLedger* const ledger = ledger_;
  if (ledger == nullptr) return;
  auto oldest = options_.spill_folder.empty() ? std::nullopt : held_.oldest_use();
  if (pool_.has_spare()) oldest = HeldObjects::Clock::time_point(std::chrono::nanoseconds(1));
  ledger->tell(oldest, held_.bytes_pinned());
}

Result<std::shared_ptr<Segment>> StoreImpl::filled_segment(std::span<const std::byte> bytes) {
  TROUPE_TRY(auto segment, take_segment(bytes.size()));
  std::memcpy(segment->bytes().data(), bytes.data(), bytes.size());
  return segment;
}

Result<std::shared_ptr<Segment>> StoreImpl::take_segment(std::size_t bytes) {
  TROUPE_TRY(NodeLedger* const node, ledger());
  if (SegmentPool::size_for(bytes) > node->limit()) {
    return fail(ErrorCode::resource_exhausted,
                "an object of {} bytes does not fit into the {} bytes that node '{}' has for "
                "objects (ClusterOptions::object_store_bytes)",
                bytes, node->limit(), options_.node);
  }
  while (!is_stopping_) {
    TROUPE_TRY(auto segment, pool_.take(bytes));
    if (segment) return segment;
    if (pool_.trim() > 0) continue;
    if (pool_.has_all_mappings()) {  // which other processes cannot help
      if (spill_one()) continue;
      return fail(ErrorCode::resource_exhausted,
                  "no room for an object of {} bytes: this process has mapped {} objects, and "
                  "vm.max_map_count allows for no more (raise it with sysctl -w, or put larger "
                  "objects{})",
                  bytes, object_mappings(),
                  options_.spill_folder.empty()
                      ? "; nothing is spilled without a folder, "
                        "ClusterOptions::object_spill_folder or job_folder"
                      : "");
    }
    if (node->clear_ended()) continue;
    if (spill_least_used(*node, bytes)) continue;
    return fail(ErrorCode::resource_exhausted,
                "node '{}' has no room for an object of {} bytes: {} of {} bytes are taken ({}){}",
                options_.node, bytes, node->used(), node->limit(), node->describe(),
                options_.spill_folder.empty()
                    ? "; nothing is spilled without a folder "
                      "(ClusterOptions::object_spill_folder or job_folder)"
                    : "");
  }
  return fail(ErrorCode::cancelled, "this process is shutting down");
}

bool StoreImpl::spill_least_used(const NodeLedger& node, std::size_t bytes) {
  const auto victim = node.victim();
  std::optional<HeldObjects::Clock::time_point> own;
  {
    const Lock lock(mutex_);
    own = held_.oldest_use();
  }
  if (!victim || (own && *own < victim->used_at)) return spill_one();
  return make_room_at(victim->endpoint, bytes) || spill_one();
}

bool StoreImpl::make_room_at(const std::string& victim, std::size_t bytes) {
  const Promise<std::uint64_t> freed;
  (void)ask<std::uint64_t>(victim, StoreMethod::make_room, std::uint64_t{bytes},
                           [freed](Result<std::uint64_t> answer) { freed.complete(answer); });
  const auto answer = freed.future().get(room_timeout);
  return answer.ok() ? *answer > 0 : ledger_.load()->clear_ended();
}

std::uint64_t StoreImpl::make_room(std::uint64_t bytes) {
  std::uint64_t freed = pool_.trim();
  while (freed < bytes && !is_stopping_ && spill_one()) freed += pool_.trim();
  const Lock lock(mutex_);
  tell_ledger();
  return freed;
}

Result<std::shared_ptr<UniqueFd>> StoreImpl::write_file(std::span<const std::byte> bytes) const {
  // A file without a name: it goes with its process, however that ends.
  const std::string& folder = options_.spill_folder;
  auto file =
      std::make_shared<UniqueFd>(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!*file) {  // some file systems cannot
    std::string path = folder + "/troupe-object-XXXXXX";
    file->reset(::mkostemp(path.data(), O_CLOEXEC));
    if (!*file) return fail_errno(errno, fmt::format("cannot spill an object to {}", folder));
    ::unlink(path.c_str());
  }
  TROUPE_CHECK(write_all(file->get(), bytes, fmt::format("cannot spill an object to {}", folder)));
  return file;
}

bool StoreImpl::spill_one() {
  if (options_.spill_folder.empty()) return false;
  std::optional<ObjectId> id;
  std::shared_ptr<Segment> segment;
  std::uint64_t bytes = 0;
  bool is_written = false;
  {
    const Lock lock(mutex_);
    id = held_.begin_spill();
    if (!id) return false;
    const HeldObjects::Held& held = *held_.find(*id);
    segment = held.segment;
    bytes = held.bytes;
    is_written = held.file != nullptr;
  }
  std::shared_ptr<UniqueFd> file;
  bool has_failed = false;
  if (!is_written) {
    auto written = write_file(segment->bytes().first(bytes));
    has_failed = !written.ok();
    if (has_failed) {
      log::error("{}", written.error().message);
    } else {
      file = *std::move(written);
    }
  }
  Later later;
  {
    const Lock lock(mutex_);
    if (auto freed = held_.end_spill(*id, std::move(file))) {
      later.freed.push_back(*std::move(freed));
    }
    if (!has_failed) {
      ++counts_.spills;
      metrics_.spills.add();
    }
    tell_ledger();
  }
  segment.reset();
  finish(std::move(later));
  return !has_failed;
}

void StoreImpl::begin_restore(const ObjectId& object) {
  {
    const Lock lock(mutex_);
    HeldObjects::Held* const held = held_.find(object);
    if (held == nullptr || held->state != HeldObjects::State::spilled) return;
    held_.begin_restore(*held);
  }
  if (!restoring_.post([this, object] { restore(object); })) {
    Later later;
    {
      const Lock lock(mutex_);
      if (auto freed = held_.remove(object)) later.freed.push_back(*std::move(freed));
    }
    finish(std::move(later));
  }
}

void StoreImpl::restore(const ObjectId& object) {
  std::uint64_t bytes = 0;
  std::shared_ptr<UniqueFd> file;
  {
    const Lock lock(mutex_);
    const HeldObjects::Held* const held = held_.find(object);
    if (held == nullptr) return;
    bytes = held->bytes;
    file = held->file;
  }
  auto segment = take_segment(bytes);
  const Result<void> read = segment.ok()
                                ? read_all_at(file->get(), (*segment)->bytes().first(bytes), 0,
                                              "cannot read a spilled object")
                                : segment.error();
  Later later;
  {
    const Lock lock(mutex_);
    HeldObjects::Held* const held = held_.find(object);
    if (held == nullptr) return;
    std::vector<HeldObjects::Waiter> waiters;
    if (read.ok()) {
      held->segment = *std::move(segment);
      waiters = held_.set_ready(object);
      ++counts_.restores;
      metrics_.restores.add();
    } else {
      waiters = held_.fail_restore(*held);
    }
    for (auto& waiter : waiters) {
      later.run.emplace_back([waiter = std::move(waiter), read] { waiter(read); });
    }
    if (held->is_dropped) {
      later.run.emplace_back([this, object] { drop_held(object); });
    }
    tell_ledger();
  }
  finish(std::move(later));
}

}  // namespace troupe
