#include "launcher/check/check_job.hpp"

#include <cstdio>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "launcher/batch/input/byte_source.hpp"
#include "launcher/check/input_sample.hpp"
#include "launcher/job/job_files.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/node_preflight.hpp"

namespace troupe {
namespace {

constexpr std::size_t sampled_lines = 1000;

ExitCode refuse(const Error& error) {
  std::fflush(stdout);  // earlier output comes first if both go to one file
  std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
  return ExitCode::refused;
}

/// Checks that the job could create its output and the folder of its logs.
Result<void> check_output_files(const Config& config, const RunOptions& run) {
  TROUPE_CHECK(check_journal(journal_options(config, run)));
  std::error_code ignored;
  std::filesystem::path place = job_folder_of(config.job.output);
  if (place.empty()) return {};  // a pipe or a device, whose logs are in a temporary folder
  if (std::filesystem::exists(place, ignored) && !std::filesystem::is_directory(place, ignored)) {
    return fail(ErrorCode::io, "{} must be the folder of the job's logs, but is a file",
                place.string());
  }
  if (!std::filesystem::exists(place, ignored)) place = place.parent_path();
  if (place.empty()) place = ".";
  if (::access(place.c_str(), W_OK) == 0) return {};
  return fail_errno(errno, fmt::format("cannot write to {}; give an --output where you may write",
                                       place.string()));
}

/// Starts agents on the plan's nodes, and reports on these. Errors: the job would be refused.
Result<void> check_nodes(const JobPlan& plan) {
  if (plan.cluster.join) {
    std::puts("\nnodes that join are looked at when the job starts");
    return {};
  }
  std::fflush(stdout);
  TROUPE_TRY(const PreflightReport report, look_at_nodes(plan));
  std::printf("\n%s%s\n", report.table.c_str(), describe(report).c_str());
  for (const Finding& finding : report.findings) {
    if (!finding.is_fatal) std::printf("warning: %s\n", describe(finding).c_str());
  }
  return check_preflight(report);
}

/// Reports on the first lines of the input. Errors: the job would be refused, or would answer
/// nothing.
Result<ExitCode> check_input(const JobPlan& plan) {
  const Config::Job& job = plan.config.job;
  if (!is_rereadable(job.input)) {
    std::error_code ignored;
    if (job.input != standard_stream && !std::filesystem::exists(job.input, ignored)) {
      return fail(ErrorCode::not_found, "cannot open the input {}: no such file", job.input);
    }
    std::printf("input %s: a pipe, which is not looked at\n", job.input.c_str());
    return ExitCode::all_answered;
  }
  TROUPE_TRY(const InputSample sample, sample_input(plan, sampled_lines));
  std::fputs(describe(sample, job.input).c_str(), stdout);
  if (sample.bad == 0) return ExitCode::all_answered;
  if (sample.bad == sample.lines) {
    return fail(ErrorCode::invalid_argument,
                "none of the {} lines of {} that were looked at can run; the first: {}",
                sample.lines, job.input, sample.first.front().message);
  }
  if (job.max_failures && sample.bad > static_cast<std::size_t>(*job.max_failures)) {
    return fail(ErrorCode::invalid_argument,
                "{} bad lines are more than job.max_failures ({}) allows: mend them, or give a "
                "larger number",
                sample.bad, *job.max_failures);
  }
  return ExitCode::finished_with_errors;
}

}  // namespace

ExitCode check_job(const CheckOptions& options) {
  auto config = options.run.config.load(Purpose::check);
  if (!config.ok()) return refuse(config.error());
  const auto plan = plan_job(*std::move(config), {.assumed_gpus = options.assumed_gpus,
                                                  .compares_gpu_memory = true,
                                                  .keeps_preprocessor = true});
  if (!plan.ok()) return refuse(plan.error());
  std::fputs(describe(*plan).c_str(), stdout);
  ExitCode code = ExitCode::all_answered;
  if (const auto startable = check_startable(*plan); !startable.ok()) {
    code = refuse(startable.error());
  }
  if (has_preflight(*plan) && !options.assumed_gpus) {
    const auto nodes = check_nodes(*plan);
    if (!nodes.ok()) code = refuse(nodes.error());
  }
  if (!plan->config.job.output.empty()) {
    const auto output = check_output_files(plan->config, options.run);
    if (!output.ok()) code = refuse(output.error());
  }
  if (!plan->config.job.input.empty()) {
    const auto input = check_input(*plan);
    if (!input.ok()) {
      code = refuse(input.error());
    } else if (code == ExitCode::all_answered) {
      code = *input;
    }
  }
  return code;
}

}  // namespace troupe
