#include "launcher/job/batch_job.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <unistd.h>

#include "launcher/batch/answer_format.hpp"
#include "launcher/batch/batch_reader.hpp"
#include "launcher/batch/batch_writer.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/progress/progress_printer.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto tick = std::chrono::milliseconds(50);
/// Text of requests handed to the engine and not answered, at most, and of one hand-over.
constexpr std::size_t window_bytes = std::size_t{64} << 20;
constexpr std::size_t submission_bytes = std::size_t{4} << 20;
/// Lines read before signals, answers and progress have their turn: a file may be all mistakes.
constexpr int lines_per_turn = 1024;

std::size_t size_in_bytes(const Request& request) {
  std::size_t bytes = request.prompt.size() + request.prompt_ids.size() * sizeof(std::int32_t) +
                      request.stop_token_ids.size() * sizeof(std::int32_t) +
                      request.allowed_token_ids.size() * sizeof(std::int32_t) +
                      request.logit_bias.size() * sizeof(TokenBias);
  for (const auto* texts : {&request.stop, &request.bad_words}) {
    for (const std::string& text : *texts) bytes += text.size() + sizeof(std::string);
  }
  return bytes;
}

/// The state of one run. Functions that return an ExitCode end the job with it.
class BatchJob {
 public:
  BatchJob(const JobPlan& plan, const CommandLine& line, StopSignals& signals)
      : plan_(plan),
        line_(line),
        signals_(signals),
        progress_(STDERR_FILENO, ProgressPrinter::mode_for(STDERR_FILENO, line.quiet)),
        window_(request_window(plan.engine)) {}

  ExitCode run();

 private:
  Result<void> open_files();
  std::optional<ExitCode> start_engine();
  ExitCode serve();
  std::optional<ExitCode> stop_asked();
  bool wants_input() const {
    return !input_ended_ && pending_.size() < window_ && pending_bytes_ < window_bytes;
  }
  Result<void> read_ahead();
  Result<void> take_report(const EngineReport& report);
  Result<void> write(const std::string& line);
  void show(const RequestHeader& header, const Completion& completion);
  void update_progress();
  ExitCode failed(const Error& error);
  ExitCode actor_down(std::vector<ActorDown> downs);
  ExitCode finished();
  void say(std::string_view text);

  const JobPlan& plan_;
  const CommandLine& line_;
  StopSignals& signals_;
  ProgressPrinter progress_;
  ProgressState state_;
  const std::size_t window_;  ///< requests handed to the engine and not answered, at most
  const Clock::time_point began_ = Clock::now();

  std::optional<BatchReader> reader_;
  std::optional<BatchWriter> writer_;
  std::string job_folder_;
  JobIdentity identity_;
  std::unique_ptr<EngineSession> session_;

  struct Pending {
    RequestHeader header;
    std::size_t bytes = 0;  ///< of its prompt
  };
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::size_t pending_bytes_ = 0;
  std::uint64_t next_id_ = 1;
  bool input_ended_ = false;
  bool draining_ = false;
  bool first_token_seen_ = false;  // replicas report theirs each
  std::uint64_t dropped_ = 0;
  std::vector<std::string> shown_;
};

void BatchJob::say(std::string_view text) {
  progress_.clear();
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

Result<void> BatchJob::open_files() {
  const Config& config = plan_.config;
  ParseContext context{config.model.served_model_name, static_cast<std::uint64_t>(config.job.seed)};
  TROUPE_TRY(reader_, BatchReader::open(config.job.input, std::move(context)));
  TROUPE_TRY(state_.total, count_lines(config.job.input));
  // Before the output, which is not left behind empty when this fails.
  job_folder_ = config.job.output + ".job";
  std::error_code problem;
  std::filesystem::create_directories(job_folder_, problem);
  if (problem) {
    return fail(ErrorCode::io, "cannot make the job's folder {}: {}", job_folder_,
                problem.message());
  }
  TROUPE_TRY(writer_, BatchWriter::open(config.job.output, {.overwrite = line_.overwrite,
                                                            .input_path = config.job.input}));
  identity_ = {make_job_id(config.name, config.job.input),
               std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()};

  // Logs of an earlier run would be taken for this one's.
  for (const auto& entry : std::filesystem::directory_iterator(job_folder_, problem)) {
    if (entry.path().extension() == ".log") std::filesystem::remove(entry.path(), problem);
  }
  return log::open("launcher", job_folder_ + "/launcher.log", line_.log_level);
}

std::optional<ExitCode> BatchJob::start_engine() {
  auto session = EngineSession::start(plan_, job_folder_, line_.log_level);
  if (!session.ok()) return failed(session.error());
  session_ = *std::move(session);
  state_.phase = "loading " + plan_.config.model.path;
  const auto info = session_->wait_until_ready([this] {
    update_progress();
    return signals_.count() == 0;
  });
  if (!info.ok() && info.error().code == ErrorCode::cancelled && signals_.count() > 0) {
    say("launcher: stopped before the model was loaded; nothing was answered");
    return signals_.count() > 1 ? ExitCode::interrupted : ExitCode::drained;
  }
  if (!info.ok()) return failed(info.error());
  log::info("{} KV blocks, {} bytes of KV, {} bytes of weights", info->kv_cache_blocks,
            info->kv_bytes, info->weight_bytes);
  state_.phase.clear();
  return std::nullopt;
}

ExitCode BatchJob::run() {
  if (const auto opened = open_files(); !opened.ok()) {
    say("launcher: " + opened.error().message);
    return ExitCode::refused;
  }
  if (!line_.quiet) {
    for (const std::string& warning : plan_.warnings) say("launcher: warning: " + warning);
  }
  ExitCode code = ExitCode::failed;
  if (const auto ended = start_engine()) {
    code = *ended;
  } else {
    code = serve();
  }
  // Shut down before the last word, so that whoever reads it finds no process of the job.
  if (session_) session_->shutdown();
  if (code == ExitCode::all_answered) code = finished();
  return code;
}

ExitCode BatchJob::serve() {
  while (true) {
    if (const auto stop = stop_asked()) return *stop;
    if (!draining_) {
      if (const auto read = read_ahead(); !read.ok()) return failed(read.error());
    }
    if (pending_.empty() && (input_ended_ || draining_)) break;
    const bool reads_on = wants_input() && !draining_;
    Mailbox::Content content = session_->take(reads_on ? std::chrono::milliseconds(0) : tick);
    for (const EngineReport& report : content.reports) {
      if (const auto taken = take_report(report); !taken.ok()) {
        return failed(taken.error());
      }
    }
    // After the answers that came before the end.
    if (!content.downs.empty()) return actor_down(std::move(content.downs));
    if (const auto synced = writer_->sync_if_due(Clock::now()); !synced.ok()) {
      return failed(synced.error());
    }
    update_progress();
  }
  if (const auto synced = writer_->finish(); !synced.ok()) return failed(synced.error());
  if (draining_ && !(input_ended_ && dropped_ == 0)) {
    progress_.finish(state_);
    say(
        fmt::format("launcher: stopped by a signal after {} answers; {} has whole lines only. The "
                    "rest was not begun: run again with --overwrite for all of them",
                    state_.done, plan_.config.job.output));
    return ExitCode::drained;
  }
  return ExitCode::all_answered;
}

std::optional<ExitCode> BatchJob::stop_asked() {
  const int asked = signals_.count();
  if (asked >= 2) {
    (void)writer_->finish();
    say("launcher: stopped at once; the answers written so far are whole");
    return ExitCode::interrupted;
  }
  if (asked == 1 && !draining_) {
    draining_ = true;
    progress_.print("finishing the requests that run; Ctrl-C again to stop at once");
    if (const auto drained = session_->engine().drain(); !drained.ok())
      return failed(drained.error());
  }
  return std::nullopt;
}

Result<void> BatchJob::read_ahead() {
  std::vector<Request> requests;
  std::size_t bytes = 0;
  const auto submit = [&]() -> Result<void> {
    bytes = 0;
    return requests.empty() ? Result<void>()
                            : session_->engine().submit(std::exchange(requests, {}));
  };
  for (int lines = 0; wants_input() && lines < lines_per_turn; ++lines) {
    TROUPE_TRY(auto next, reader_->next());
    if (!next) {
      input_ended_ = true;
    } else if (auto* error = std::get_if<LineError>(&*next)) {
      ++state_.errors;
      TROUPE_CHECK(write(format_error(*error, identity_)));
    } else {
      auto& [header, request] = std::get<BatchRequest>(*next);
      request.id = next_id_++;
      const std::size_t size = size_in_bytes(request);
      pending_.emplace(request.id, Pending{std::move(header), size});
      pending_bytes_ += size;
      requests.push_back(std::move(request));
      bytes += size;
      if (bytes >= submission_bytes) TROUPE_CHECK(submit());
    }
  }
  return submit();
}

Result<void> BatchJob::take_report(const EngineReport& report) {
  for (const Completion& completion : report.completions) {
    const auto found = pending_.find(completion.id);
    if (found == pending_.end()) continue;
    if (completion.failed()) ++state_.errors;
    TROUPE_CHECK(write(format_answer(found->second.header, completion, identity_)));
    show(found->second.header, completion);
    pending_bytes_ -= found->second.bytes;
    pending_.erase(found);
  }
  for (const std::uint64_t id : report.dropped) dropped_ += pending_.erase(id);
  if (report.first_token && !std::exchange(first_token_seen_, true)) {
    log::info("first token {} ms after the start",
              std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_).count());
  }
  state_.running = report.stats.running;
  state_.waiting = report.stats.waiting;
  state_.prompt_tokens = report.stats.scheduler.prompt_tokens;
  state_.prefix_tokens = report.stats.scheduler.prefix_tokens;
  state_.preemptions = report.stats.scheduler.preemptions;
  state_.most_preemptions = report.stats.scheduler.most_preemptions;
  state_.drafts = report.stats.scheduler.drafts;
  state_.accepted_drafts = report.stats.scheduler.accepted_drafts;
  state_.output_tokens = report.stats.output_tokens;
  state_.kv_use = report.stats.kv_use;
  return {};
}

Result<void> BatchJob::write(const std::string& line) {
  TROUPE_CHECK(writer_->append(line));
  ++state_.done;
  return {};
}

void BatchJob::show(const RequestHeader& header, const Completion& completion) {
  if (shown_.size() >= static_cast<std::size_t>(line_.show_answers) || completion.failed() ||
      completion.choices.empty() || completion.choices.front().text.empty()) {
    return;
  }
  shown_.push_back(fmt::format("{}: {}", header.custom_id, completion.choices.front().text));
}

void BatchJob::update_progress() {
  state_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  progress_.update(state_);
}

ExitCode BatchJob::failed(const Error& error) {
  log::error("{}", error.message);
  say(fmt::format("launcher: {}\n{} of {} lines are answered in {}\nlogs: {}/", error.message,
                  state_.done, state_.total, plan_.config.job.output, job_folder_));
  return ExitCode::failed;
}

ExitCode BatchJob::actor_down(std::vector<ActorDown> downs) {
  const Error cause = session_->cause_of(
      std::move(downs), [this](const EngineReport& report) { (void)take_report(report); });
  (void)writer_->finish();
  return failed(cause);
}

ExitCode BatchJob::finished() {
  update_progress();
  progress_.finish(state_);
  for (const std::string& text : shown_) std::printf("\n%s\n", text.c_str());
  if (!shown_.empty()) std::printf("\n");
  if (!line_.quiet) {
    std::printf("answers: %s\nlogs:    %s/\n", plan_.config.job.output.c_str(),
                job_folder_.c_str());
  }
  return state_.errors > 0 ? ExitCode::finished_with_errors : ExitCode::all_answered;
}

}  // namespace

ExitCode run_batch_job(const JobPlan& plan, const CommandLine& line, StopSignals& signals) {
  return BatchJob(plan, line, signals).run();
}

}  // namespace troupe
