#include "launcher/journal/journal.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "launcher/batch/input/byte_source.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_differences = 8;

std::string fingerprint_file(const JournalOptions& options) {
  return (options.folder.empty() ? job_folder_of(options.output) : options.folder) +
         "/fingerprint.json";
}

/// The size of a file; 0 if it is not a regular file, or does not exist.
std::uint64_t content_bytes(const std::string& output) {
  std::error_code problem;
  const auto size = is_rereadable(output) ? std::filesystem::file_size(output, problem) : 0;
  return problem ? 0 : size;
}

Result<void> check_resumable(const JournalOptions& options) {
  for (const auto* path : {&options.input, &options.output}) {
    if (is_rereadable(*path)) continue;
    const bool input = path == &options.input;
    return fail(ErrorCode::unsupported,
                "{0}: the {1} {2} is no file that can be read again, so this job cannot be gone on "
                "with. Leave {0} away, or give files",
                options.retry_errors ? "--retry-errors" : "--resume", input ? "input" : "output",
                *path == standard_stream ? "- (a pipe)" : *path);
  }
  return {};
}

/// What is asked again is answered behind all that stands in the output.
Result<void> check_retries(const JournalOptions& options) {
  if (!options.retry_errors || !options.ordered) return {};
  return fail(ErrorCode::invalid_argument,
              "--retry-errors: job.ordered is true, and answers to error lines would stand at the "
              "end of {0}, out of order. Let them: --retry-errors --resume=force --set "
              "job.ordered=false; or answer all lines anew: --overwrite",
              options.output);
}

Error refuse_content(const std::string& output, std::string_view why) {
  return fail(ErrorCode::already_exists,
              "the output {} exists and has content{}; give another --output, move it away, or "
              "replace it with --overwrite",
              output, why);
}

}  // namespace

std::string job_folder_of(const std::string& output) {
  std::error_code problem;
  const bool fifo =
      std::filesystem::symlink_status(output, problem).type() == std::filesystem::file_type::fifo;
  return is_rereadable(output) || fifo ? output + ".job" : std::string();
}

Result<void> check_journal(const JournalOptions& options) {
  const OutputOptions output{.input_path = options.input};
  TROUPE_CHECK(check_output(options.output, output));
  if (options.must_be_resumable) TROUPE_CHECK(check_resumable(options));
  TROUPE_CHECK(check_retries(options));
  if (options.mode == ResumeMode::overwrite || content_bytes(options.output) == 0) return {};
  if (options.mode == ResumeMode::never) return refuse_content(options.output, "");
  if (options.mode == ResumeMode::force) return {};
  if (!is_rereadable(options.input)) {
    return refuse_content(options.output, ", and an input that is no file cannot be gone on with");
  }
  std::error_code unreadable;  // Journal::open reports it
  if (!std::filesystem::exists(fingerprint_file(options), unreadable) && !unreadable) {
    return refuse_content(options.output, fmt::format(", but no {} says which job it is of",
                                                      fingerprint_file(options)));
  }
  return {};
}

Result<Journal> Journal::open(JournalOptions options, Fingerprint now) {
  if (options.folder.empty()) options.folder = job_folder_of(options.output);
  TROUPE_TRY(JobLock lock,
             JobLock::take(options.folder + "/lock", fmt::format("the output {}", options.output)));
  TROUPE_CHECK(check_journal(options));  // under the lock: another job may have just ended
  Journal journal(std::move(options), std::move(now), std::move(lock));
  if (journal.options_.mode == ResumeMode::overwrite) return journal;
  journal.size_before_ = content_bytes(journal.options_.output);
  if (*journal.size_before_ > 0) TROUPE_CHECK(journal.read_past());
  return journal;
}

Journal::Journal(JournalOptions options, Fingerprint fingerprint, JobLock lock)
    : options_(std::move(options)), fingerprint_(std::move(fingerprint)), lock_(std::move(lock)) {}

Result<void> Journal::read_past() {
  const std::string& output = options_.output;
  const bool force = options_.mode == ResumeMode::force;
  auto before = read_fingerprint(fingerprint_file(options_));
  if (!before.ok() && before.error().code == ErrorCode::unsupported) {
    return fail(ErrorCode::unsupported, "{}. To begin anew: --overwrite, or another --output",
                before.error().message);
  }
  if (!before.ok() && !force) {
    return fail(before.error().code,
                "{}; to go on with {} nevertheless: --resume=force; to begin anew: --overwrite",
                before.error().message, output);
  }
  same_job_ = before.ok() && before->parts == fingerprint_.parts;
  if (before.ok()) {
    auto changes = differences(*before, fingerprint_);
    if (!changes.empty() && !force) {
      if (changes.size() > max_differences) {
        const std::size_t more = changes.size() - max_differences;
        changes.resize(max_differences);
        changes.push_back(fmt::format("and {} more", more));
      }
      return fail(ErrorCode::invalid_argument,
                  "the output {} has answers of another job:\n  {}\nTo go on with it nevertheless: "
                  "--resume=force; to begin anew: --overwrite, or another --output",
                  output, fmt::join(changes, "\n  "));
    }
    fingerprint_.identity = before->identity;
    warnings_ = rewritten_weights(*before, fingerprint_);
  }
  TROUPE_TRY(past_, read_past_answers(output, asked_again(), options_.keep_waiting));
  return {};
}

AskedAgain Journal::asked_again() const {
  if (!options_.retry_errors) return nullptr;
  return [codes = *options_.retry_errors](const AnswerKey& key) {
    return codes.empty() || std::ranges::count(codes, key.code) > 0;
  };
}

Result<void> Journal::drop_retried() {
  if (past_.retried == 0) return {};
  if (content_bytes(options_.output) != size_before_) return {};  // BatchWriter::open reports it
  TROUPE_TRY(past_.whole_bytes, drop_error_lines(options_.output, past_.whole_bytes, asked_again(),
                                                 options_.keep_waiting));
  size_before_ = past_.whole_bytes;
  return {};
}

Result<void> Journal::begin() {
  TROUPE_CHECK(drop_retried());
  TROUPE_TRY(writer_, BatchWriter::open(options_.output, {.input_path = options_.input,
                                                          .keep_bytes = past_.whole_bytes,
                                                          .size_before = size_before_,
                                                          .keep_waiting = options_.keep_waiting,
                                                          .keeps_backlog = true}));
  if (!is_rereadable(options_.output)) return {};
  // After the output is emptied: otherwise it would claim the old answers.
  return write_fingerprint(fingerprint_file(options_), fingerprint_);
}

}  // namespace troupe
