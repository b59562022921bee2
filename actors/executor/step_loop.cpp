#include "actors/executor/step_loop.hpp"

#include <algorithm>
#include <utility>

#include "actors/executor/report_parts.hpp"
#include "runtime/base/log.hpp"

namespace troupe {
namespace {

/// Longer than any step: supervision notices a dead worker, not this timeout.
constexpr auto step_timeout = std::chrono::minutes(10);
/// How often the driver gets progress reports while steps go on; answers are reported at once.
constexpr auto report_interval = std::chrono::milliseconds(200);
/// Completions in one message, well below the transport's limit (UnixTransport).
constexpr std::size_t max_report_bytes = std::size_t{64} << 20;

}  // namespace

StepLoop::StepLoop(StepDomain domain, std::vector<StepChannels> channels, ExecutorInbox& inbox,
                   const ExecutorSpec& spec, const ActorAddress& executor,
                   const Tokenizer* tokenizer)
    : domain_(std::move(domain)),
      channels_(std::move(channels)),
      inbox_(inbox),
      index_(spec.domain),
      executor_(executor.id),
      incarnation_(executor.incarnation),
      keeps_progress_(spec.keeps_progress),
      answers_(tokenizer, spec.keeps_progress),
      reports_(spec.reports),
      limit_(StepLimit::Duration(spec.least_step_limit_us)) {}

Result<void> StepLoop::run() {
  if (began_us_ == 0) began_us_ = now_us();
  if (resuming_ && inbox_.is_empty()) TROUPE_CHECK(report_if_due());
  while (take_inbox()) {
    Result<void> stepped = send_plans();
    if (stepped.ok() && domain_.in_flight() > 0) {
      stepped = take_results();
      if (stepped.ok()) note_first_step();
    } else if (stepped.ok() && domain_.live() > 0) {
      stepped = fail(ErrorCode::internal,
                     "{} requests are live, no step is in flight and none can be planned",
                     domain_.live());
    }
    if (!stepped.ok()) {
      std::lock_guard lock(inbox_.mutex);
      if (inbox_.stopping || inbox_.pausing) break;
      return stepped;
    }
    TROUPE_CHECK(report_if_due());
    TROUPE_CHECK(await_reports());
  }
  return report_.completions.empty() && report_.dropped.empty() ? Result<void>() : report_now();
}

void StepLoop::restart(std::vector<StepChannels> channels, std::uint32_t epoch,
                       std::span<const std::uint64_t> taken_back) {
  if (!resuming_) resuming_.emplace();  // else there was no step since the last restart
  resuming_->epoch = epoch;
  resuming_->sequences += domain_.running();
  restarted_us_ = now_us();
  channels_ = std::move(channels);
  sent_.clear();
  limit_.restart();
  widened_.restart();
  epoch_ = epoch;
  resuming_->lost.add(domain_.restart(epoch));
  domain_.abort(taken_back);
  resuming_->forgotten_tokens += answers_.drop(taken_back);
}

void StepLoop::take_over(std::uint32_t epoch) {
  resuming_ = FirstStep{.epoch = epoch};
  epoch_ = epoch;
  restarted_us_ = now_us();
}

void StepLoop::note_first_step() {
  if (!resuming_) return;
  resuming_->wait_us = static_cast<std::uint64_t>(now_us() - restarted_us_);
  report_.resumed = std::exchange(resuming_, std::nullopt);
}

void StepLoop::interrupt() {
  for (StepChannels& replica : channels_) {
    for (Channel& plans : replica.plans) plans.interrupt();
    if (replica.results) replica.results->interrupt();
  }
}

bool StepLoop::is_idle() {
  return !inbox_.stopping && !inbox_.pausing && inbox_.submitted.empty() &&
         inbox_.draining == draining_ && domain_.live() == 0 && domain_.in_flight() == 0;
}

bool StepLoop::take_inbox() {
  std::vector<ExecutorInbox::Entry> submitted;
  std::vector<ExecutorInbox::Peaks> peaks;
  bool begins_to_drain = false;
  {
    SpanScope idle(&recorder_, SpanKind::idle);
    const bool was_live = domain_.live() > 0 || domain_.in_flight() > 0;
    const std::int64_t asleep_us = now_us();
    if (was_live) idle.forget();
    std::unique_lock lock(inbox_.mutex);
    // Reports are sent by now, so the loop can sleep until a call comes.
    inbox_.changed.wait(lock, [this] { return !is_idle(); });
    if (!was_live) idle_us_ += now_us() - asleep_us;
    if (inbox_.stopping || inbox_.pausing) return false;
    submitted.swap(inbox_.submitted);
    peaks.swap(inbox_.peaks);
    begins_to_drain = inbox_.draining && !draining_;
    draining_ = inbox_.draining;
  }
  for (const auto& [rank, of_rank] : peaks) widened_.take(rank, of_rank);
  for (auto& entry : submitted) {
    if (auto* refused = std::get_if<Completion>(&entry.prepared)) {
      report_.completions.push_back(std::move(*refused));
      continue;
    }
    auto request = std::get<PreparedRequest>(std::move(entry.prepared));
    if (draining_ && entry.progress.empty()) {
      report_.dropped.push_back(request.id);
    } else {
      start(entry.replica, std::move(request), std::move(entry.progress));
    }
  }
  if (begins_to_drain) drop_waiting();
  return true;
}

void StepLoop::start(std::size_t replica, PreparedRequest request,
                     std::vector<SequenceUpdate> progress) {
  const std::uint64_t id = request.id;
  SequenceGroupSpec spec =
      answers_.begin(replica, std::move(request), Clock::now(), std::move(progress));
  if (resuming_) note_resumed(spec);
  const Result<void> added = domain_.replica(replica).add(std::move(spec));
  if (added.ok()) return;
  RequestTracker::Outcome refused = answers_.fail(id, "invalid_request", added.error().message);
  report_.completions.push_back(*std::move(refused.completion));
}

void StepLoop::note_resumed(const SequenceGroupSpec& spec) {
  resuming_->sequences += spec.resumed.size();
  for (const ResumedSequence& sequence : spec.resumed) {
    // The last token had no keys and values yet.
    const std::size_t known = spec.prompt.size() + sequence.tokens.size();
    resuming_->lost.kv_tokens += std::max<std::size_t>(known, 1) - 1;
  }
}

Result<void> StepLoop::carry_out(RequestTracker::Outcome outcome) {
  Scheduler& scheduler = domain_.replica(outcome.replica);
  if (outcome.aborted) scheduler.abort(outcome.request, *outcome.aborted);
  if (!outcome.beams.empty()) {
    TROUPE_CHECK(scheduler.advance(outcome.request, std::move(outcome.beams)));
  }
  if (outcome.completion) {
    scheduler.abort(outcome.request);
    report_.completions.push_back(*std::move(outcome.completion));
  }
  return {};
}

void StepLoop::drop_waiting() {
  const std::vector<std::uint64_t> dropped = domain_.abort_waiting();
  (void)answers_.drop(dropped);
  report_.dropped.insert(report_.dropped.end(), dropped.begin(), dropped.end());
}

std::int64_t StepLoop::now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

Result<void> StepLoop::send_plans() {
  while (true) {
    SpanScope planning(&recorder_, SpanKind::plan);
    std::vector<StepPlan> plans = domain_.plan(now_us());
    if (plans.empty()) {
      planning.forget();
      return {};
    }
    add_widened_layers(plans);
    planning.set_step(plans.front().step);
    planning.end();
    recorder_.set_step(plans.front().step);
    const SpanScope sending(&recorder_, SpanKind::send_plan);
    std::uint64_t work = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      work = std::max(work, StepLimit::work_of(plans[i]));
      TROUPE_TRY(const auto bytes, encoder_.encode(plans[i]));
      for (Channel& node : channels_[i].plans) {
        TROUPE_CHECK(node.send(bytes, deadline_in(step_timeout)));
      }
    }
    epoch_ = plans.front().epoch;
    sent_.push_back({plans.front().step, now_us(), work});
  }
}

void StepLoop::add_widened_layers(std::vector<StepPlan>& plans) {
  const std::vector<std::int32_t> due = widened_.take_due(plans.front().step);
  if (due.empty()) return;
  for (StepPlan& plan : plans) plan.widened_layers = due;
  for (const WidenedLayer& widened : widened_.take_new()) {
    log::warning("{}", describe(widened));
    report_.widened.push_back(widened);
  }
}

Result<void> StepLoop::take_results() {
  std::vector<StepResult> results;
  std::uint32_t model_us = 0;
  SpanScope waiting(&recorder_, SpanKind::wait_result);
  for (StepChannels& replica : channels_) {
    TROUPE_TRY(const Message message, receive_answer(replica.answering()));
    TROUPE_TRY(StepResult result, decode_result(message.bytes()));
    model_us = std::max(model_us, result.model_us);
    stats_.shared_positions += result.shared_positions;
    results.push_back(std::move(result));
  }
  const std::int64_t answered_us = now_us();
  recorder_.set_step(results.front().step);
  waiting.set_step(results.front().step);
  waiting.end();
  std::uint64_t sequences = 0;
  for (const StepResult& result : results) sequences += result.results.size();
  const std::int64_t planned_us = sent_.front().at_us;
  limit_.note(sent_.front().work, std::chrono::microseconds(answered_us - planned_us));
  sent_.pop_front();
  SpanScope applying(&recorder_, SpanKind::apply);
  TROUPE_TRY(auto updates, domain_.apply(std::move(results)));
  applying.end();
  TROUPE_CHECK(take_updates(std::move(updates)));
  note_step(planned_us, answered_us, model_us, sequences);
  return {};
}

Result<Message> StepLoop::receive_answer(Channel& channel) {
  const SentStep& oldest = sent_.front();
  Deadline patience(step_timeout);
  while (true) {
    const auto limit = limit_.limit(oldest.work);
    const auto turn =
        limit ? std::min<std::chrono::nanoseconds>(*limit, patience.left()) : patience.left();
    auto answer = channel.receive(deadline_in(turn));
    if (answer.ok() || answer.error().code != ErrorCode::timed_out || patience.is_over()) {
      return answer;
    }
    const double seconds = static_cast<double>(now_us() - oldest.at_us) * 1e-6;
    log::warning("step {} is not answered after {:.1f} s", oldest.step, seconds);
    report_.overdue = OverdueStep{epoch_, oldest.step, seconds};
    TROUPE_CHECK(report_now());
  }
}

void StepLoop::note_step(std::int64_t planned_us, std::int64_t answered_us, std::uint64_t model_us,
                         std::uint64_t sequences) {
  const SchedulerCounters counters = domain_.counters();
  StepRecord record;
  record.planned_us = planned_us;
  record.answered_us = answered_us;
  record.step_us = static_cast<std::uint64_t>(answered_us - planned_us);
  record.model_us = model_us;
  record.prompt_tokens = counters.prompt_tokens - counted_.prompt_tokens;
  record.prefix_tokens = counters.prefix_tokens - counted_.prefix_tokens;
  record.output_tokens = stats_.output_tokens - counted_output_tokens_;
  record.sequences = sequences;
  record.running = domain_.running();
  record.waiting = domain_.waiting();
  record.kv_use = record.max_kv_use = domain_.kv_use();
  step_records_.add(record);
  counted_ = counters;
  counted_output_tokens_ = stats_.output_tokens;
  ++stats_.steps;
  stats_.model_us += record.model_us;
  stats_.step_us += record.step_us;
}

ProcessTelemetry StepLoop::telemetry(bool all) const {
  ProcessTelemetry seen;
  seen.role = ProcessRole::executor;
  seen.index = index_;
  seen.totals = recorder_.totals();
  if (all) {
    seen.kept = recorder_.spans();
    seen.traffic = tcp_traffic();
    const std::lock_guard lock(answers_mutex_);
    seen.inter_token_us = answers_.inter_token_us();
  }
  seen.now_ns = monotonic_ns();
  return seen;
}

Result<void> StepLoop::take_updates(std::vector<SequenceUpdate> updates) {
  const auto now = Clock::now();
  const SpanScope scope(&recorder_, SpanKind::answer);
  const std::lock_guard lock(answers_mutex_);
  for (SequenceUpdate& update : updates) {
    const std::size_t tokens = update.tokens.size();
    RequestTracker::Outcome outcome = answers_.take(std::move(update), now);
    if (!outcome.known) continue;  // its request failed in this step
    stats_.output_tokens += tokens;
    TROUPE_CHECK(carry_out(std::move(outcome)));
  }
  return {};
}

void StepLoop::update_stats() {
  stats_.running = domain_.running();
  stats_.waiting = domain_.waiting();
  stats_.kv_use = domain_.kv_use();
  stats_.active_us = static_cast<std::uint64_t>(now_us() - began_us_ - idle_us_);
  stats_.scheduler = domain_.counters();
}

Result<void> StepLoop::check_reports() {
  while (!unanswered_.empty() && unanswered_.front().ready()) {
    const Result<void> taken = unanswered_.front().get(std::chrono::seconds(0));
    unanswered_.pop_front();
    if (taken.ok() || taken.error().code == ErrorCode::cancelled) continue;  // this process ends
    return fail(taken.error().code, "a report was not taken: {}", taken.error().message);
  }
  return {};
}

Result<void> StepLoop::await_reports() {
  constexpr std::chrono::milliseconds turn{20};
  while (!unanswered_.empty()) {
    {
      const std::lock_guard lock(inbox_.mutex);
      if (!is_idle()) return {};
    }
    (void)unanswered_.front().wait(turn);
    TROUPE_CHECK(check_reports());
  }
  return {};
}

Result<void> StepLoop::report_if_due() {
  TROUPE_CHECK(check_reports());
  if (domain_.live() == 0 && domain_.in_flight() == 0) note_first_step();
  const bool first = !first_token_reported_ && stats_.output_tokens > 0;
  const auto now = Clock::now();
  if (report_.completions.empty() && report_.dropped.empty() && !report_.resumed && !first &&
      domain_.live() > 0 && now - last_report_ < report_interval) {
    return {};
  }
  return report_now();
}

Result<void> StepLoop::report_now() {
  const bool first = !first_token_reported_ && stats_.output_tokens > 0;
  const auto now = Clock::now();
  const SpanScope scope(&recorder_, SpanKind::report);
  update_stats();
  report_.domain = index_;
  report_.executor = executor_;
  report_.incarnation = incarnation_;
  report_.epoch = epoch_;
  if (keeps_progress_ && now - last_progress_ >= report_interval) {
    report_.progress = answers_.take_progress();
    last_progress_ = now;
  }
  report_.steps = step_records_.take();
  report_.stats = stats_;
  report_.first_token = first;
  first_token_reported_ |= first;
  last_report_ = now;
  for (EngineReport& part :
       split_report(std::exchange(report_, EngineReport{}), max_report_bytes)) {
    unanswered_.push_back(reports_.call<&ReportSink::report>(std::move(part)));
  }
  return check_reports();
}

}  // namespace troupe
