#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/link/link.hpp"
#include "runtime/state/messages.hpp"

namespace troupe {

/// The driver's end of its links to observers. It has threads of its own from the first request on,
/// so a cluster that nobody asks pays nothing, and one that is asked answers beside its work: not
/// on the link's thread, since reading a log may take its time. Changes (is_change) have a thread
/// of their own, as they wait for agents: the state is told meanwhile.
class StateServer {
 public:
  /// Answers one request; called on the threads of the server: one change and one other request at
  /// a time.
  using Answer = std::function<StateReply(const StateRequest& request)>;

  explicit StateServer(Answer answer) : answer_(std::move(answer)) {}
  ~StateServer() { stop(); }

  /// For the links of observers. This object outlives them.
  LinkEvents link_events();
  /// Ends the threads, after the requests that they answer. Requests that wait are dropped.
  /// Idempotent.
  void stop();

 private:
  struct Request {
    std::shared_ptr<TlsLink> link;
    StateRequest request;
  };

  void on_open(const std::shared_ptr<TlsLink>& link);
  void on_frame(const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame);
  void on_closed(const std::shared_ptr<TlsLink>& link);
  /// Requests that are answered one after the other, and the thread that does.
  struct Lane {
    std::deque<Request> requests;
    std::condition_variable changed;
    std::thread thread;
  };
  /// False if there can be no thread for it.
  bool begin(Lane& lane);
  void run(Lane& lane);

  const Answer answer_;
  std::mutex mutex_;
  bool is_stopping_ = false;
  std::map<const TlsLink*, std::size_t> waiting_;  ///< requests of each open link
  Lane questions_, changes_;
};

}  // namespace troupe
