#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/intrusive_list.hpp"
#include "runtime/call/call_frame.hpp"
#include "runtime/call/call_observer.hpp"
#include "runtime/call/incoming_call.hpp"

namespace troupe {

class AnswerTable;
class IncomingLink;

/// A call from another process.
class RemoteCall : public IncomingCallState, public std::enable_shared_from_this<RemoteCall> {
 public:
  struct Origin {
    CallerId caller = 0;
    CallId call = 0;
    ActorId actor = 0;
    std::uint32_t incarnation = 0;  ///< of the actor, as the caller knows it
  };

  RemoteCall(std::shared_ptr<IncomingLink> link, Origin origin);
  ~RemoteCall() override;

  const Origin& origin() const { return origin_; }
  virtual bool may_come_again() const { return false; }

 protected:
  void take_answer(CallAnswer answer) override;

  const Origin origin_;
  std::shared_ptr<IncomingLink> link_;

 private:
  friend class IncomingLink;
  ListHook<RemoteCall> listed_;  ///< of the IncomingLink, under its mutex
};

/// A link that another process opened, and the calls that came on it and are not answered, which
/// the caller may cancel. Callable from any thread.
class IncomingLink {
 public:
  IncomingLink(std::shared_ptr<Link> link, std::shared_ptr<CallObserver> observer)
      : link_(std::move(link)), observer_(std::move(observer)) {}
  const std::shared_ptr<Link>& link() const { return link_; }
  /// Sends the answer of a call that was made to this incarnation.
  void answer(CallId call, std::uint32_t incarnation, const CallAnswer& answer) const;
  /// The unanswered call of that number; null if there is none. Takes the same time however many
  /// there are, as do their beginnings and ends.
  std::shared_ptr<RemoteCall> find(CallId call) const;
  /// The unanswered calls that do not come again.
  std::vector<std::shared_ptr<RemoteCall>> unanswered_once() const;

  /// Expires when the link has closed.
  std::weak_ptr<const void> lifetime() const { return lifetime_; }
  /// The link has closed. The transport's thread, as lifetime().
  void end() { lifetime_.reset(); }

  /// From its hello, if it has sent one; of the transport's thread.
  CallerId caller = 0;
  std::uint32_t generation = 0;
  /// The caller has opened another one: it has given up what it sent here, or sends it again there.
  bool is_stale = false;

 private:
  friend class RemoteCall;
  friend class ResendableCall;
  static constexpr std::size_t fewest_lists = 64;
  using Calls = IntrusiveList<RemoteCall, &RemoteCall::listed_>;

  void add(RemoteCall& call);
  void remove(RemoteCall& call);
  /// Which list a call of this number is in; mutex_ is held, as for the next one. The calls on a
  /// link may be every 64th of their caller, so the number is mixed (Fibonacci hashing).
  std::size_t list_of(CallId call) const {
    return (call * 0x9e3779b97f4a7c15U >> 32) % lists_.size();
  }
  void resize(std::size_t lists);

  const std::shared_ptr<Link> link_;
  const std::shared_ptr<CallObserver> observer_;
  std::shared_ptr<const void> lifetime_ = std::make_shared<char>();
  mutable std::mutex mutex_;
  /// A hash table by number, of as many lists as calls, by and large. The lists are in the calls
  /// themselves, which costs no allocation.
  std::vector<Calls> lists_ = std::vector<Calls>(fewest_lists);
  std::size_t calls_ = 0;
};

/// One that may come again. It keeps its answer, until its caller acknowledges it, and sends it
/// again if the caller asks on another link.
class ResendableCall final : public RemoteCall {
 public:
  /// `table`: that it is in.
  ResendableCall(std::shared_ptr<IncomingLink> link, Origin origin,
                 std::shared_ptr<AnswerTable> table, std::weak_ptr<CallTarget> target)
      : RemoteCall(std::move(link), origin),
        table_(std::move(table)),
        target_(std::move(target)),
        incarnation_(origin.incarnation) {}

  std::shared_ptr<CallTarget> target() const { return target_.lock(); }
  bool may_come_again() const override { return true; }
  /// The caller waits for the answer on this link now, as one of this incarnation.
  void redirect(std::shared_ptr<IncomingLink> link, std::uint32_t incarnation);
  /// Forgets a kept answer. A caller that asks for it gets actor_unavailable.
  void drop_answer();

 private:
  void take_answer(CallAnswer answer) override;

  const std::shared_ptr<AnswerTable> table_;
  const std::weak_ptr<CallTarget> target_;
  std::mutex mutex_;           ///< of link_ and what follows
  std::uint32_t incarnation_;  ///< that the caller takes the target for
  std::shared_ptr<const CallAnswer> kept_;
};

}  // namespace troupe
