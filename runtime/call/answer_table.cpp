#include "runtime/call/answer_table.hpp"

#include <algorithm>

namespace troupe {

// Calls are destroyed without the lock: `dropped` is declared before it.

void AnswerTable::erase(Caller& caller, Calls::iterator at, std::deque<Known>& dropped) {
  caller.bytes -= at->second.kept_bytes;
  dropped.push_back(std::move(at->second));
  caller.calls.erase(at);
}

void AnswerTable::touch(Caller& caller, bool is_linked) {
  std::list<CallerId>& to = is_linked ? linked_ : unlinked_;
  to.splice(to.end(), caller.is_linked ? linked_ : unlinked_, caller.place);
  caller.is_linked = is_linked;
}

void AnswerTable::forget_one_caller(std::deque<Known>& dropped) {
  std::list<CallerId>& from = unlinked_.empty() ? linked_ : unlinked_;
  const auto caller = callers_.find(from.front());
  for (auto& [number, known] : caller->second.calls) dropped.push_back(std::move(known));
  callers_.erase(caller);
  from.pop_front();
  has_forgotten_caller_ = true;
}

std::pair<AnswerTable::Caller*, AnswerTable::Calls::iterator> AnswerTable::find(
    const ResendableCall& call) {
  const auto caller = callers_.find(call.origin().caller);
  if (caller == callers_.end()) return {nullptr, {}};
  const auto found = caller->second.calls.find(call.origin().call);
  if (found == caller->second.calls.end() || found->second.call.get() != &call) {
    return {nullptr, {}};
  }
  return {&caller->second, found};
}

std::optional<AnswerTable::Over> AnswerTable::begin_link(CallerId id, std::uint32_t generation,
                                                         CallId floor) {
  std::deque<Known> dropped;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = callers_.try_emplace(id);
  Caller& caller = found->second;
  if (is_new) caller.place = linked_.insert(linked_.end(), id);
  if (generation <= caller.generation) return std::nullopt;
  caller.generation = generation;
  touch(caller, true);
  Over over;
  while (!caller.calls.empty() && caller.calls.begin()->first < floor) {
    over.push_back(caller.calls.begin()->second.call);
    erase(caller, caller.calls.begin(), dropped);
  }
  if (!is_new) return over;
  // Earlier links of a caller that is not known may have been forgotten with it.
  if (has_forgotten_caller_) caller.given_up = generation - 1;
  if (callers_.size() > max_callers_) forget_one_caller(dropped);
  return over;
}

AnswerTable::Begin AnswerTable::begin_call(
    CallerId id, std::uint32_t generation, std::uint32_t first_generation, CallId number,
    const std::shared_ptr<CallTarget>& target,
    const std::function<std::shared_ptr<ResendableCall>()>& make) {
  std::deque<Known> dropped;
  const std::lock_guard lock(mutex_);
  const auto found = callers_.find(id);
  if (found == callers_.end() || found->second.generation != generation) {
    return {Verdict::stale, nullptr};
  }
  Caller& caller = found->second;
  touch(caller, caller.is_linked);
  if (const auto known = caller.calls.find(number); known != caller.calls.end()) {
    if (known->second.call->target() == target) return {Verdict::known, known->second.call};
    erase(caller, known, dropped);
  }
  if (first_generation <= caller.given_up) return {Verdict::too_late, nullptr};
  auto call = make();
  caller.calls.emplace(number, Known{call});
  return {Verdict::fresh, std::move(call)};
}

void AnswerTable::note_answer(const ResendableCall& call, std::size_t bytes) {
  std::deque<Known> dropped;
  const std::lock_guard lock(mutex_);
  const auto [caller, found] = find(call);
  if (caller == nullptr) return;
  found->second.kept_bytes = bytes;
  caller->bytes += bytes;
  if (bytes > 0) caller->first_kept = std::min(caller->first_kept, found->first);
  // Goes on from where it was left: over all answers, each call is passed once, by and large.
  auto it = caller->calls.lower_bound(caller->first_kept);
  for (; it != caller->calls.end() && caller->bytes > std::max(max_bytes_, bytes); ++it) {
    if (it->second.kept_bytes == 0 || it == found) continue;
    it->second.call->drop_answer();
    caller->bytes -= std::exchange(it->second.kept_bytes, 0);
  }
  const CallId next = it == caller->calls.end() ? std::numeric_limits<CallId>::max() : it->first;
  caller->first_kept = bytes > 0 ? std::min(found->first, next) : next;
}

void AnswerTable::forget(const ResendableCall& call) {
  std::deque<Known> dropped;
  const std::lock_guard lock(mutex_);
  const auto [caller, found] = find(call);
  if (caller != nullptr) erase(*caller, found, dropped);
}

AnswerTable::Over AnswerTable::acknowledge(CallerId id, std::span<const CallId> numbers) {
  std::deque<Known> dropped;
  const std::lock_guard lock(mutex_);
  const auto caller = callers_.find(id);
  if (caller == callers_.end()) return {};
  Over over;
  for (const CallId number : numbers) {
    const auto found = caller->second.calls.find(number);
    if (found == caller->second.calls.end()) continue;
    over.push_back(found->second.call);
    erase(caller->second, found, dropped);
  }
  return over;
}

void AnswerTable::end_link(CallerId id, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = callers_.find(id);
  if (found == callers_.end() || found->second.generation != generation) return;
  touch(found->second, false);
}

void AnswerTable::give_up(CallerId id, std::uint32_t generation) {
  std::deque<Known> dropped;
  const std::lock_guard lock(mutex_);
  const auto found = callers_.find(id);
  if (found == callers_.end() || found->second.generation != generation) return;
  Caller& caller = found->second;
  caller.given_up = generation;
  touch(caller, false);
  unlinked_.splice(unlinked_.begin(), unlinked_, caller.place);
  while (!caller.calls.empty()) erase(caller, caller.calls.begin(), dropped);
}

void AnswerTable::clear() {
  std::unordered_map<CallerId, Caller> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(callers_);
  linked_.clear();
  unlinked_.clear();
}

}  // namespace troupe
