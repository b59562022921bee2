#include "launcher/submit/submit.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "launcher/job/cluster_nodes.hpp"
#include "launcher/job/job_files.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/submit/sbatch_script.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/run_program.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr auto sbatch_timeout = std::chrono::seconds(60);

Result<void> check_readable(std::string_view key, const std::string& path) {
  if (::access(path.c_str(), R_OK) == 0) return {};
  return fail(ErrorCode::not_found, "{}: cannot read {}", key, path);
}

Result<void> write_script(const std::string& path, const std::string& script) {
  std::ofstream file(path);
  file << script;
  file.close();
  if (file) return {};
  return fail(ErrorCode::io, "cannot write {}; give an --output where you may write", path);
}

/// Refuses what would end or change the lines of the script that it stands in.
Result<void> check_one_line(std::string_view key, const std::string& text) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (std::ranges::none_of(text, is_control)) return {};
  return fail(ErrorCode::invalid_argument, "{}: a batch script takes no line breaks in it", key);
}

/// Refuses outputs that the queued job could not write.
Result<void> check_outputs(const Config& config, int array) {
  std::vector<std::string> outputs;
  if (array == 0) outputs = {config.job.output};
  const ShardName name = name_of_shards(config.job.output, array);
  for (int i = 0; i < array; ++i) {
    outputs.push_back(fmt::format("{}{:05}{}", name.before, i, name.after));
  }
  JournalOptions journal = journal_options(config, {});
  for (std::string& output : outputs) {
    journal.output = std::move(output);
    TROUPE_CHECK(check_journal(journal));
  }
  return {};
}

/// The arguments of `launcher run` that give the same configuration, but for the output.
std::vector<std::string> run_arguments(const ConfigSource& source, bool resumes_never) {
  std::vector<std::string> arguments;
  if (!source.path.empty()) arguments = {"--config", source.path};
  for (const Override& given : source.overrides) {
    if (given.key == "job.output") continue;
    arguments.insert(arguments.end(), {"--set", given.key + "=" + given.value});
  }
  arguments.insert(arguments.end(), {"--set", "cluster.launch=slurm"});
  // An output with content was refused when the job was submitted; a requeued job has answers.
  if (resumes_never) arguments.insert(arguments.end(), {"--set", "job.resume=auto"});
  return arguments;
}

Result<SbatchJob> sbatch_job(const SubmitOptions& options) {
  TROUPE_TRY(Config config, options.config.load(Purpose::run));
  config.cluster.launch = "slurm";
  if (!config.cluster.hosts.empty()) {
    return fail(ErrorCode::invalid_argument,
                "cluster.hosts: Slurm gives the nodes; leave the key out");
  }
  if (config.job.input == "-" || config.job.output == "-") {
    return fail(ErrorCode::invalid_argument, "job.{}: a job in the queue needs a file, found \"-\"",
                config.job.input == "-" ? "input" : "output");
  }
  if (config.job.output.find('\\') != std::string::npos) {
    return fail(ErrorCode::invalid_argument,
                "job.output: sbatch takes no name with a backslash for the log beside it, found {}",
                config.job.output);
  }
  TROUPE_CHECK(check_cluster_keys(config.cluster));
  TROUPE_CHECK(check_readable("job.input", config.job.input));
  TROUPE_CHECK(check_outputs(config, options.array));
  TROUPE_CHECK(check_arrangement(config));
  for (const auto& [key, text] :
       {std::pair<std::string_view, const std::string&>{"name", config.name},
        {"job.input", config.job.input},
        {"job.output", config.job.output}}) {
    TROUPE_CHECK(check_one_line(key, text));
  }
  TROUPE_TRY(std::string launcher, own_program());
  return SbatchJob{.name = config.name,
                   .folder = fs::current_path().string(),
                   .launcher = std::move(launcher),
                   .arguments = run_arguments(options.config, config.job.resume == "never"),
                   .input = config.job.input,
                   .output = fs::absolute(config.job.output).lexically_normal().string(),
                   .grace_seconds = config.job.grace_seconds,
                   .array = options.array,
                   .sbatch = options.sbatch};
}

Result<void> submit(const SubmitOptions& options) {
  TROUPE_TRY(const SbatchJob job, sbatch_job(options));
  const std::string script = sbatch_script(job);
  if (options.dry_run) {
    std::fputs(script.c_str(), stdout);
    return {};
  }
  const std::string path = job.output + ".sbatch";
  // A script that is there may be that of a job in the queue.
  const std::string offered = path + ".new";
  TROUPE_CHECK(write_script(offered, script));
  auto submitted = run_program({"sbatch", "--parsable", offered}, "", sbatch_timeout);
  std::error_code problem;
  if (!submitted.ok()) {
    fs::remove(offered, problem);  // nothing runs it
    return std::move(submitted).error();
  }
  fs::rename(offered, path, problem);
  if (problem) {
    std::fprintf(stderr, "launcher: the script stays %s: %s\n", offered.c_str(),
                 problem.message().c_str());
  }
  std::string id = *std::move(submitted);
  id = id.substr(0, id.find_first_of(";\n"));  // JOB, or JOB;CLUSTER
  std::string log = log_of(job, id);
  std::string answers = job.output;
  if (job.array > 0) {
    const ShardName name = name_of_shards(job.output, job.array);
    log = log_of(job, id + "_TASK");
    answers = name.before + "TASK" + name.after;
  }
  const std::string text = fmt::format(
      "submitted job {0}\nscript:  {1}\nlog:     {2}\nanswers: {3}\n"
      "next: squeue --job {0}; to end it early, whole answers kept: scancel --batch --signal=TERM "
      "{0}\n",
      id, path, log, answers);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

ExitCode run_submit(const SubmitOptions& options) {
  const auto done = submit(options);
  if (done.ok()) return ExitCode::all_answered;
  std::fprintf(stderr, "launcher: %s\n", done.error().message.c_str());
  return ExitCode::refused;
}

}  // namespace troupe
