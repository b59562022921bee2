#include "runtime/call/remote_call.hpp"

#include <vector>

#include "runtime/call/answer_table.hpp"

namespace troupe {

std::shared_ptr<RemoteCall> IncomingLink::find(CallId call) const {
  const std::lock_guard lock(mutex_);
  RemoteCall* one = lists_[list_of(call)].first();
  while (one != nullptr && one->origin_.call != call) one = Calls::after(*one);
  return one == nullptr ? nullptr : one->weak_from_this().lock();
}

std::vector<std::shared_ptr<RemoteCall>> IncomingLink::unanswered_once() const {
  std::vector<std::shared_ptr<RemoteCall>> calls;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    for (const Calls& list : lists_) {
      for (RemoteCall* one = list.first(); one != nullptr; one = Calls::after(*one)) {
        if (auto call = one->weak_from_this().lock()) calls.push_back(std::move(call));
      }
    }
  }
  std::erase_if(calls, [](const auto& call) { return call->may_come_again(); });
  return calls;
}

void IncomingLink::answer(CallId call, std::uint32_t incarnation, const CallAnswer& answer) const {
  send_answer(*link_, call, incarnation, answer);
  observer_->on_answer_sent(sizeof(Trailer) + (answer.ok() ? answer->size() : 0));
}

void IncomingLink::add(RemoteCall& call) {
  const std::lock_guard lock(mutex_);
  if (++calls_ > lists_.size()) resize(lists_.size() * 2);
  lists_[list_of(call.origin_.call)].push_front(call);
}

void IncomingLink::remove(RemoteCall& call) {
  const std::lock_guard lock(mutex_);
  if (!call.listed_.is_listed()) return;
  Calls::remove(call);
  if (--calls_ < lists_.size() / 8 && lists_.size() > fewest_lists) resize(lists_.size() / 2);
}

void IncomingLink::resize(std::size_t lists) {
  std::vector<Calls> before(lists);
  before.swap(lists_);
  for (const Calls& list : before) {
    while (RemoteCall* const call = list.first()) {
      Calls::remove(*call);
      lists_[list_of(call->origin_.call)].push_front(*call);
    }
  }
}

RemoteCall::RemoteCall(std::shared_ptr<IncomingLink> link, Origin origin)
    : origin_(origin), link_(std::move(link)) {
  link_->add(*this);
}

RemoteCall::~RemoteCall() {
  if (listed_.is_listed()) link_->remove(*this);  // nobody else can change that now
}

void RemoteCall::take_answer(CallAnswer answer) {
  link_->remove(*this);
  link_->answer(origin_.call, origin_.incarnation, answer);
}

void ResendableCall::take_answer(CallAnswer answer) {
  // An actor that has ended keeps no answers: the caller may ask its next incarnation.
  if (answer.actor_has_ended()) table_->forget(*this);
  const auto kept = std::make_shared<const CallAnswer>(std::move(answer));
  std::shared_ptr<IncomingLink> link;
  std::uint32_t incarnation = 0;
  {
    const std::lock_guard lock(mutex_);
    kept_ = kept;
    link = link_;
    incarnation = incarnation_;
  }
  link->remove(*this);
  if (!kept->actor_has_ended()) table_->note_answer(*this, kept->ok() ? (*kept)->size() : 0);
  link->answer(origin_.call, incarnation, *kept);
}

void ResendableCall::redirect(std::shared_ptr<IncomingLink> link, std::uint32_t incarnation) {
  std::shared_ptr<const CallAnswer> kept;
  {
    const std::lock_guard lock(mutex_);
    link_->remove(*this);
    link_ = std::move(link);
    incarnation_ = incarnation;
    kept = kept_;
    if (kept == nullptr) return link_->add(*this);
    link = link_;
  }
  link->answer(origin_.call, incarnation, *kept);
}

void ResendableCall::drop_answer() {
  static const auto dropped = std::make_shared<const CallAnswer>(
      fail(ErrorCode::actor_unavailable,
           "the call has run, but its answer is not kept any more after its link broke"));
  const std::lock_guard lock(mutex_);
  if (kept_ != nullptr && kept_->ok()) kept_ = dropped;
}

}  // namespace troupe
