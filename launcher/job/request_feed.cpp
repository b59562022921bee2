#include "launcher/job/request_feed.hpp"

#include <chrono>
#include <utility>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

/// Approximate text of one submission to the engine.
constexpr std::size_t submission_bytes = std::size_t{4} << 20;
constexpr auto reading_turn = std::chrono::milliseconds(20);

}  // namespace

Result<void> RequestFeed::read() {
  if (state_ != State::ended) state_ = State::flows;
  SpanScope span(&sinks_.spans, SpanKind::read);
  bool any = false;
  const auto until = Clock::now() + reading_turn;
  while (state_ == State::flows && Clock::now() < until) {
    if (!sinks_.pending.has_room() || !sinks_.output.has_room()) {
      state_ = State::full;
      break;
    }
    auto item = input_->next(std::chrono::milliseconds(0));
    if (!item.ok()) {
      broken_ = item.error();
      state_ = State::ended;
      break;
    }
    any = any || std::holds_alternative<LineError>(*item) ||
          std::holds_alternative<BatchRequest>(*item);
    TROUPE_CHECK(take(*std::move(item)));
  }
  if (!any) span.forget();
  return submit();
}

Result<void> RequestFeed::take(BatchReader::Item item) {
  if (std::holds_alternative<BatchReader::End>(item)) {
    state_ = State::ended;
  } else if (std::holds_alternative<BatchReader::NotYet>(item)) {
    state_ = State::silent;
  } else if (const auto* error = std::get_if<LineError>(&item)) {
    sinks_.on_refused(*error);
    sinks_.output.expect(error->line);
    return sinks_.output.write(*error);
  } else if (auto* request = std::get_if<BatchRequest>(&item)) {
    sinks_.output.expect(request->header.line);
    bytes_ += sinks_.pending.add(*request);
    requests_.push_back(std::move(request->request));
    if (bytes_ >= submission_bytes) return submit();
  }
  return {};
}

Result<void> RequestFeed::submit() {
  bytes_ = 0;
  if (requests_.empty()) return {};
  return sinks_.submit(std::exchange(requests_, {}));
}

}  // namespace troupe
