#include "launcher/bench/faults/fault_run.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <utility>

#include <unistd.h>

#include "launcher/bench/faults/fault_report.hpp"
#include "launcher/bench/faults/process_table.hpp"
#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr auto tick = 50ms;
/// Beside restart.wait_seconds: for what is noticed late, and for weights to be read again.
constexpr auto recovery_limit = 300s;
constexpr auto silence_limit = 600s;
constexpr std::size_t columns = 79;
constexpr std::size_t submission_bytes = std::size_t{4} << 20;
constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();

/// Resident memory of this process; 0 if /proc does not tell.
std::uint64_t own_bytes() {
  const auto bytes = resident_bytes(::getpid());
  return bytes.ok() ? *bytes : 0;
}

}  // namespace

FaultRun::FaultRun(EngineSession& session, const JobPlan& plan, const FaultOptions& options,
                   std::vector<Request> requests, StopSignals& signals, Tell tell)
    : session_(session),
      plan_(plan),
      options_(options),
      requests_(std::move(requests)),
      signals_(signals),
      tell_(std::move(tell)),
      injector_(session.cluster(), options),
      waits_(plan.config),
      book_(requests_.size()) {
  figures_.requests = requests_.size();
  window_ = std::min(requests_.size(), request_window(plan.engine));
}

double FaultRun::seconds_since_begin() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

MemoryReading FaultRun::read_memory() {
  auto agents = injector_.agents();
  return {.driver = own_bytes(), .agents = std::move(agents)};
}

Result<void> FaultRun::run(const std::vector<FaultKind>& kinds, std::uint64_t seed) {
  figures_.seed = seed;
  figures_.interval_seconds = options_.interval_seconds;
  figures_.kinds = kinds;
  figures_.planned = options_.count;
  if (std::ranges::any_of(plan_.cluster.nodes, &NodeSpec::joins_later)) {
    return fail(
        ErrorCode::invalid_argument,
        "bench faults: the job would begin with fewer nodes than its replicas need: name all "
        "of them, or lower parallel.data_parallel_size");
  }
  TROUPE_CHECK(injector_.check(kinds));
  end_ = requests_.size() + 1;
  heard_ = Clock::now();
  TROUPE_CHECK(until([this] { return next_id_ == end_ && book_.unanswered() == 0; }));
  if (is_disturbed_) {
    return fail(ErrorCode::peer_died, "a process was lost in the run that was to be undisturbed");
  }
  figures_.counts_agree = figures_.sampled_tokens == figures_.answered_tokens;
  if (options_.alters_request) alter_request();

  for (PlannedFault& fault : plan_faults(kinds, options_.count, options_.interval_seconds, seed)) {
    planned_.push_back(fault);
  }
  figures_.memory_before = read_memory();
  began_ = Clock::now();
  next_fault_ = began_ + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(planned_.front().wait_seconds));
  end_ = no_end;
  makes_faults_ = true;
  const Result<void> broken = until([this] {
    return planned_.empty() && injector_.current() == nullptr && domains_.away().empty();
  });
  if (injector_.current() != nullptr) finish_fault();
  TROUPE_CHECK(broken);
  makes_faults_ = false;
  // The round that has begun is finished.
  end_ = (next_id_ - 2) / requests_.size() * requests_.size() + requests_.size() + 1;
  TROUPE_CHECK(until([this] { return next_id_ == end_ && book_.unanswered() == 0; }));
  figures_.memory_after = read_memory();
  figures_.is_complete = true;
  return {};
}

Result<void> FaultRun::until(const std::function<bool()>& is_done) {
  while (!is_done()) {
    if (signals_.count() > 0) return fail(ErrorCode::cancelled, "stopped by a signal");
    TROUPE_CHECK(submit());
    TROUPE_CHECK(take_reports());
    TROUPE_CHECK(advance_faults());
    if (Clock::now() - heard_ >
        silence_limit + std::chrono::seconds(plan_.config.restart.wait_seconds)) {
      return fail(ErrorCode::timed_out, "no answer for {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - heard_).count());
    }
  }
  return {};
}

Result<void> FaultRun::submit() {
  while (next_id_ < end_ && book_.unanswered() < window_) {
    std::vector<Request> batch;
    std::size_t bytes = 0;
    while (next_id_ < end_ && book_.unanswered() < window_ && bytes < submission_bytes) {
      Request request = requests_[(next_id_ - 1) % requests_.size()];
      request.id = next_id_++;
      bytes += request.prompt.size() + request.prompt_ids.size() * sizeof(std::int32_t);
      book_.asked(request.id);
      batch.push_back(std::move(request));
    }
    TROUPE_CHECK(session_.engine().submit(std::move(batch)));
  }
  return {};
}

Result<void> FaultRun::take_reports() {
  Mailbox::Content content = session_.take(tick);
  for (EngineReport& report : content.reports) {
    running_ = report.stats.running;
    figures_.sampled_tokens = std::max(figures_.sampled_tokens, report.stats.output_tokens);
    for (Completion& completion : report.completions) {
      heard_ = Clock::now();
      for (const Choice& choice : completion.choices) {
        figures_.answered_tokens += choice.token_ids.size();
      }
      book_.take(std::move(completion));
    }
  }
  for (const EngineRecovery& recovery : content.recoveries) take(recovery);
  for (const EngineDomainChange& change : content.domain_changes) take(change);
  for (const EngineWait& wait : content.waits) {
    for (const std::string& text : waits_.take(wait, Clock::now())) tell_wait(text);
  }
  figures_.compared = book_.compared();
  figures_.different = book_.different();
  figures_.differences = book_.differences();
  if (makes_faults_) figures_.seconds = seconds_since_begin();
  if (content.downs.empty()) return {};
  return session_.cause_of(std::move(content.downs), [](const EngineReport&) {});
}

void FaultRun::take(const EngineRecovery& recovery) {
  is_disturbed_ = true;
  heard_ = Clock::now();
  figures_.unsaved_tokens += recovery.unsaved_tokens;
  injector_.note(recovery);
}

void FaultRun::take(const EngineDomainChange& change) {
  using Kind = EngineDomainChange::Kind;
  if (change.kind == Kind::answered) return;
  is_disturbed_ = true;
  heard_ = Clock::now();
  figures_.unsaved_tokens += change.unsaved_tokens;
  domains_changed_ = heard_;
  domains_.take(change, makes_faults_ ? seconds_since_begin() : 0);
  figures_.domain_changes = domains_.changes();
  figures_.domain_contradictions = domains_.contradictions();
  injector_.note(change);
  tell_(domain_line(figures_.domain_changes.back()));
  (void)waits_.take(change);  // the wait that it ends
}

Result<void> FaultRun::check_domains() const {
  const auto limit = recovery_limit + std::chrono::seconds(plan_.config.restart.wait_seconds);
  const std::vector<std::int32_t> away = domains_.away();
  if (away.empty() || Clock::now() - domains_changed_ < limit) return {};
  return fail(ErrorCode::timed_out, "step domain {} was dropped and is not back within {} s",
              away.front(), limit.count());
}

void FaultRun::tell_wait(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = printable(line);
    if (line.starts_with("  ")) {
      tell_(line);
      continue;
    }
    for (const std::string& part : wrapped(line, columns, 2)) tell_(part);
  }
}

Result<void> FaultRun::advance_faults() {
  if (!makes_faults_) return {};
  TROUPE_CHECK(check_domains());
  const FaultProgress* under_way = injector_.current();
  if (under_way == nullptr) {
    const bool is_time =
        !planned_.empty() && Clock::now() >= next_fault_ && running_ > 0 && domains_.away().empty();
    if (!is_time) return {};
    TROUPE_TRY(const bool is_made, injector_.make(planned_.front(), seconds_since_begin()));
    if (is_made) planned_.pop_front();
    return {};
  }
  if (under_way->is_recovered()) {
    finish_fault();
    return {};
  }
  if (const std::string problem = injector_.problem(); !problem.empty()) {
    return fail(ErrorCode::io, "the fault could not be made: {}", problem);
  }
  const auto limit = recovery_limit + std::chrono::seconds(plan_.config.restart.wait_seconds);
  if (Clock::now() - under_way->made() < limit) return {};
  return fail(ErrorCode::timed_out, "the job has not recovered from the last fault within {} s",
              limit.count());
}

void FaultRun::finish_fault() {
  FaultRecord record = injector_.take();
  record.driver_bytes = own_bytes();
  if (figures_.faults.empty()) tell_(fault_heading());
  figures_.faults.push_back(record);
  tell_(fault_line(figures_.faults.size(), record));
  running_ = 0;  // as long as nothing new is reported
  if (planned_.empty()) return;
  next_fault_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(planned_.front().wait_seconds));
}

void FaultRun::alter_request() {
  // The last one has a seed if half of the requests have.
  Request& request = requests_.back();
  request.temperature = 1.0F;
  request.seed ^= 0x5eed;
}

}  // namespace troupe
