#include "launcher/cli/run_options.hpp"

#include <sstream>

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {

std::string_view RunArguments::summary() const {
  return "Answers a file of requests. It is what the launcher does without a command: launcher "
         "--config FILE.";
}

std::string RunArguments::details() const {
  return R"(Examples:
  launcher --config configs/demo/cluster.yaml
  launcher run --config c.yaml -i in.jsonl -o answers.jsonl
  launcher run --model ~/models/Qwen3-0.6B -i in.jsonl -o answers.jsonl
  launcher run --config c.yaml --set parallel.tensor_parallel_size=2

Files:
  input     OpenAI batch format, a JSON object a line: custom_id, method
            "POST", url "/v1/chat/completions" or "/v1/completions", body;
            gzip and zstd are unpacked; "-" is standard input
  output    an answer or an error a line, whole lines only, in the order the
            requests finish; custom_id says whose it is. What is in it is not
            asked again: the same command goes on where a job broke off.
            Packed if it ends in .gz or .zst; "-" is standard output
  OUTPUT.job/   logs of all processes of the job, its lock and fingerprint
  Relative paths count from the folder the launcher is started in.

Signals:
  Ctrl-C once (or SIGTERM, SIGHUP, SIGUSR1): take no new requests, finish those
  that run within job.grace_seconds, exit 4
  Ctrl-C twice: stop at once, exit 130

Exit codes:
  0    every request was answered
  1    finished; the output has error lines
  2    refused before anything started (command line, YAML, checkpoint, files)
  3    failed; the same command goes on
  4    ended early by a signal; the same command goes on
  130  stopped by a second Ctrl-C)";
}

void RunArguments::declare(CLI::App& app) {
  config_.declare(app);
  files_.declare(app);
  app.add_flag("--resume{auto}", resume_,
               "go on with the output of a job that broke off, as happens anyway if it is of the "
               "same job; refuses a job that cannot be gone on with. =force: whatever has changed; "
               "=never: refuse an output that has content")
      ->option_text("[=HOW]");
  app.add_flag("--retry-errors{all}", retry_errors_,
               "ask the requests of error lines again, all or those of some codes; their old lines "
               "are taken out of the output")
      ->option_text("[=CODE,...]");
  app.add_flag("--overwrite", overwrite_, "replace an output file that has content");
  app.add_flag("--quiet,-q", quiet_, "no progress; errors are still told");
  app.add_flag("--json-progress", json_progress_,
               "progress as JSON, a line a second on stderr, for programs");
  app.add_option("--show-answers", show_answers_,
                 "print the texts of the first N answers at the end")
      ->type_name("N")
      ->expected(1)
      ->check(integer_between(0, 1'000'000));
  app.add_option("--log-level", log_level_, "debug, info, warning or error")
      ->type_name("LEVEL")
      ->expected(1)
      ->capture_default_str();
}

Result<RunOptions> RunArguments::judge() const {
  RunOptions options;
  TROUPE_TRY(options.config, config_.judge());
  TROUPE_CHECK(files_.add_to(options.config));
  auto& overrides = options.config.overrides;
  if (!resume_.empty()) {
    if (overwrite_) {
      return fail(ErrorCode::invalid_argument, "give --resume or --overwrite, not both");
    }
    overrides.push_back({fmt::format("--resume={}", resume_), "job.resume", resume_});
    options.resume_asked = resume_ != "never";
  }
  if (!retry_errors_.empty()) {
    if (overwrite_) {
      return fail(ErrorCode::invalid_argument, "give --retry-errors or --overwrite, not both");
    }
    options.retry_errors.emplace();
    std::istringstream codes(retry_errors_ == "all" ? "" : retry_errors_);
    for (std::string code; std::getline(codes, code, ',');) {
      if (!code.empty()) options.retry_errors->push_back(code);
    }
  }
  const auto level = log::parse_level(log_level_);
  if (!level) {
    return fail(ErrorCode::invalid_argument, "--log-level: {}", level.error().message);
  }
  options.log_level = *level;
  if (quiet_ && json_progress_) {
    return fail(ErrorCode::invalid_argument, "give --quiet or --json-progress, not both");
  }
  options.overwrite = overwrite_;
  options.quiet = quiet_;
  options.json_progress = json_progress_;
  options.show_answers = show_answers_;
  return options;
}

}  // namespace troupe
