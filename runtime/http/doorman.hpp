#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "runtime/base/refusal_log.hpp"
#include "runtime/base/result.hpp"
#include "runtime/process/acceptor.hpp"
#include "runtime/process/strangers.hpp"

namespace troupe {

/// Accepts connections for an HTTP server that keeps unfinished requests, even of clients that are
/// gone, until its timeout and then has no room for others: it hands a connection over once the
/// head of a request has come. At most 64 connections wait, each 2 s; a further one displaces the
/// oldest. Accepts are paced (Acceptor), refusals summed up in the log. One thread, as long as the
/// object lives.
class Doorman {
 public:
  /// Calls `admit` on the thread with connections from which a request can be read.
  static Result<std::unique_ptr<Doorman>> start(std::string name, UniqueFd listener,
                                                std::function<void(UniqueFd connection)> admit);
  ~Doorman();
  Doorman(const Doorman&) = delete;
  Doorman& operator=(const Doorman&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Doorman(std::string name, UniqueFd listener, std::function<void(UniqueFd)> admit)
      : admit_(std::move(admit)), acceptor_(std::move(listener)), refusals_(std::move(name)) {}
  void run();
  void wait();
  /// Admits a connection whose request has come, and refuses one that is closed.
  void look_at(int fd);
  void accept_all(Clock::time_point now);
  void refuse(int fd, std::string_view why);

  const std::function<void(UniqueFd)> admit_;
  Acceptor acceptor_;
  Strangers strangers_{64, std::chrono::seconds(2)};
  RefusalLog refusals_;
  std::unordered_map<int, UniqueFd> waiting_;
  std::unordered_set<int> unfinished_;  ///< those that have sent part of a request
  UniqueFd wake_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace troupe
