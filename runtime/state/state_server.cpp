#include "runtime/state/state_server.hpp"

#include <system_error>

#include "runtime/base/log.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_links = 32;
/// Of one link. An observer waits for an answer before it asks again.
constexpr std::size_t max_waiting = 4;
/// AskJoin names as many hosts as the largest jobs have nodes.
constexpr std::size_t max_request_bytes = std::size_t{256} << 10;

}  // namespace

LinkEvents StateServer::link_events() {
  return {[this](const std::shared_ptr<TlsLink>& link) { on_open(link); },
          [this](const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame) {
            on_frame(link, frame);
          },
          [this](const std::shared_ptr<TlsLink>& link, const Error&) { on_closed(link); }};
}

void StateServer::on_open(const std::shared_ptr<TlsLink>& link) {
  std::lock_guard lock(mutex_);
  if (waiting_.size() >= max_links) {
    log::warning("{} observers are connected already; another one is turned away", max_links);
    return link->close();
  }
  waiting_.emplace(link.get(), 0);
}

void StateServer::on_closed(const std::shared_ptr<TlsLink>& link) {
  std::lock_guard lock(mutex_);
  waiting_.erase(link.get());
}

void StateServer::on_frame(const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame) {
  auto request = frame.size() <= max_request_bytes
                     ? decode_request(frame)
                     : fail(ErrorCode::corrupt_data, "a request of {} bytes", frame.size());
  if (!request.ok()) {
    // Who speaks another protocol gets an answer of this one, which says so.
    (void)link->send(
        LinkFrame(encode_reply(StateRefusal{request.error().code, request.error().message})));
    return;
  }
  std::lock_guard lock(mutex_);
  const auto waiting = waiting_.find(link.get());
  if (waiting == waiting_.end() || is_stopping_) return;
  if (waiting->second >= max_waiting) return link->close();
  Lane& lane = is_change(*request) ? changes_ : questions_;
  if (!begin(lane)) return link->close();
  ++waiting->second;
  lane.requests.push_back({link, *std::move(request)});
  lane.changed.notify_one();
}

bool StateServer::begin(Lane& lane) {
  if (lane.thread.joinable()) return true;
  try {
    lane.thread = std::thread([this, &lane] { run(lane); });
    return true;
  } catch (const std::system_error& error) {
    log::warning("an observer cannot be answered: no thread: {}", error.what());
    return false;
  }
}

void StateServer::run(Lane& lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    lane.changed.wait(lock, [&] { return is_stopping_ || !lane.requests.empty(); });
    if (is_stopping_) return;
    const Request next = std::move(lane.requests.front());
    lane.requests.pop_front();
    const auto waiting = waiting_.find(next.link.get());
    if (waiting == waiting_.end()) continue;  // it has gone meanwhile
    --waiting->second;
    lock.unlock();
    auto sent = next.link->send(LinkFrame(encode_reply(answer_(next.request))));
    if (!sent.ok() && sent.error().code == ErrorCode::invalid_argument) {
      (void)next.link->send(LinkFrame(
          encode_reply(StateRefusal{ErrorCode::resource_exhausted, "the answer is too large"})));
    }
    lock.lock();
  }
}

void StateServer::stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (Lane* lane : {&questions_, &changes_}) {
      lane->requests.clear();
      threads.push_back(std::move(lane->thread));
      lane->changed.notify_all();
    }
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace troupe
