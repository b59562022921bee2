#include "launcher/job/job_files.hpp"

#include <cerrno>
#include <filesystem>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/job/job_fingerprint.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

ResumeMode resume_mode(const Config& config, const RunOptions& options) {
  if (options.overwrite) return ResumeMode::overwrite;
  if (config.job.resume == "never") return ResumeMode::never;
  return config.job.resume == "force" ? ResumeMode::force : ResumeMode::automatic;
}

/// Makes the folder of the job with this output, whose logs and reports are its owner's alone; for
/// a pipe or device a temporary one, which is kept.
Result<std::string> make_job_folder(const std::string& output) {
  std::string folder = job_folder_of(output);
  if (folder.empty()) {
    TROUPE_TRY(TemporaryFolder temporary,
               TemporaryFolder::create(fmt::format("troupe-job-{}", ::getpid())));
    return temporary.keep().string();
  }
  std::error_code problem;
  const auto parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, problem);
  if (!problem && ::mkdir(folder.c_str(), 0700) != 0) {
    problem.assign(errno, std::generic_category());
  }
  std::error_code ignored;
  if (!problem || std::filesystem::is_directory(folder, ignored)) return folder;
  return fail(ErrorCode::io,
              "cannot make the job's folder {}: {}; give an --output where you may write", folder,
              problem.message());
}

/// Removes old logs, which would be taken for this run's, and opens a new one.
Result<void> begin_log(const std::string& folder, log::Level level) {
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    if (entry.path().extension() == ".log") std::filesystem::remove(entry.path(), problem);
  }
  return log::open("launcher", folder + "/launcher.log", level);
}

}  // namespace

JournalOptions journal_options(const Config& config, const RunOptions& options) {
  return {.output = config.job.output,
          .input = config.job.input,
          .mode = resume_mode(config, options),
          .retry_errors = options.retry_errors,
          .ordered = config.job.ordered,
          .must_be_resumable = options.resume_asked || options.retry_errors.has_value()};
}

Shard shard_of(const Config::Job& job) {
  return {static_cast<std::size_t>(job.shard_index), static_cast<std::size_t>(job.num_shards)};
}

Result<JobFiles> JobFiles::open(const JobPlan& plan, const RunOptions& options,
                                KeepGoing keep_waiting) {
  const Config::Job& config = plan.config.job;
  const Shard shard = shard_of(config);
  TROUPE_TRY(const std::uint64_t total, count_lines(config.input, shard, keep_waiting));
  TROUPE_TRY(std::string folder, make_job_folder(config.output));
  TROUPE_TRY(Fingerprint fingerprint, job_fingerprint(plan, keep_waiting));
  JournalOptions journal_asked = journal_options(plan.config, options);
  journal_asked.folder = folder;
  journal_asked.keep_waiting = std::move(keep_waiting);
  TROUPE_TRY(Journal journal, Journal::open(std::move(journal_asked), std::move(fingerprint)));
  LineIds ids = journal.take_ids();
  ids.reserve(total + 2 * journal.errors_before().count);
  ParseContext context{plan.model_names, static_cast<std::uint64_t>(config.seed)};
  TROUPE_TRY(BatchReader reader,
             BatchReader::open(config.input, std::move(context), std::move(ids), shard));
  TROUPE_CHECK(begin_log(folder, options.log_level));
  return JobFiles{.folder = std::move(folder),
                  .total = total,
                  .journal = std::move(journal),
                  .input = InputAhead(std::move(reader)),
                  .resumable = is_rereadable(config.input) && is_rereadable(config.output)};
}

bool JobFiles::nothing_left() const {
  // Each line of the output answers one of the input, if both belong to the same job.
  return resumable && journal.same_job() && journal.lines_before() == total;
}

}  // namespace troupe
