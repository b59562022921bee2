#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/call/remote_call.hpp"

namespace troupe {

/// The resendable calls of other processes that came here, and their answers until these are
/// acknowledged. So a call that comes again, because its link broke, is not run again.
///
/// A caller counts its links (generations). What comes late on an earlier one than its latest is
/// stale, because the caller sends it again on that one.
/// Bounds: of a caller at most `max_bytes` of answers are kept, the largest ids longest; the calls
/// stay known. A caller without a link is given up (give_up), and what it may have had run before
/// is refused then; so it is for callers beyond `max_callers`: those that are given up are
/// forgotten first, then those whose links ended first, then those that have called least recently.
/// Callable from any thread.
class AnswerTable {
 public:
  AnswerTable(std::size_t max_bytes, std::size_t max_callers)
      : max_bytes_(max_bytes), max_callers_(max_callers) {}

  /// Calls that their caller waits for no more; those of them that have not begun need not run.
  using Over = std::vector<std::shared_ptr<ResendableCall>>;

  /// The caller has opened a link; its calls with smaller numbers than `floor` are over, and are
  /// returned. Nothing if it is not its latest.
  std::optional<Over> begin_link(CallerId caller, std::uint32_t generation, CallId floor);

  enum class Verdict {
    fresh,     ///< run it
    known,     ///< it was redirected to this link
    stale,     ///< close its link: it comes again on another one
    too_late,  ///< it may have run, but nobody knows any more
  };
  struct Begin {
    Verdict verdict = Verdict::fresh;
    std::shared_ptr<ResendableCall> call;  ///< where there is one
  };
  /// A call has come on a link of its caller; `first_generation` is that of its first sending, and
  /// `make` makes what stands for it if it is fresh. A call of an earlier `target` of that actor is
  /// not the same.
  Begin begin_call(CallerId caller, std::uint32_t generation, std::uint32_t first_generation,
                   CallId call, const std::shared_ptr<CallTarget>& target,
                   const std::function<std::shared_ptr<ResendableCall>()>& make);

  /// The call has been answered with so many bytes, which are kept.
  void note_answer(const ResendableCall& call, std::size_t bytes);
  void forget(const ResendableCall& call);
  /// These calls are over for the caller; those that are known are returned.
  Over acknowledge(CallerId caller, std::span<const CallId> calls);
  /// The caller's link has ended; it may open another one.
  void end_link(CallerId caller, std::uint32_t generation);
  /// Drops all answers of a caller that has opened no later link than this one.
  void give_up(CallerId caller, std::uint32_t generation);
  /// Forgets all, which the calls in it refer to.
  void clear();

 private:
  struct Known {
    std::shared_ptr<ResendableCall> call;
    std::size_t kept_bytes = 0;
  };
  struct Caller {
    std::uint32_t generation = 0;
    std::uint32_t given_up = 0;  ///< calls first sent on a link up to this one are not known
    std::size_t bytes = 0;
    std::map<CallId, Known> calls;
    CallId first_kept = std::numeric_limits<CallId>::max();  ///< no smaller one has bytes
    std::list<CallerId>::iterator place{};                   ///< in linked_ or unlinked_
    bool is_linked = true;
  };
  using Calls = std::map<CallId, Known>;
  /// Where the call is known, unless a later one has its number: its actor has been started again
  /// in this process. mutex_ is held.
  std::pair<Caller*, Calls::iterator> find(const ResendableCall& call);
  /// Takes the caller to the end of its list.
  void touch(Caller& caller, bool is_linked);
  void forget_one_caller(std::deque<Known>& dropped);
  static void erase(Caller& caller, Calls::iterator at, std::deque<Known>& dropped);

  const std::size_t max_bytes_;
  const std::size_t max_callers_;
  mutable std::mutex mutex_;
  std::unordered_map<CallerId, Caller> callers_;
  /// The keys of callers_ with a link and those without one, each in the order in which they are
  /// forgotten.
  std::list<CallerId> linked_, unlinked_;
  bool has_forgotten_caller_ = false;
};

}  // namespace troupe
