#include "launcher/job/job_teller.hpp"

#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "actors/api/widened_layer.hpp"
#include "launcher/batch/input/byte_source.hpp"
#include "launcher/job/exit_messages.hpp"
#include "launcher/report/report_json.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

void JobTeller::warn(const std::string& warning) {
  if (!options_.quiet) progress_.tell("launcher: warning: " + warning);
}

void JobTeller::tell_plan(const JobPlan& plan) {
  if (options_.quiet) return;
  for (const auto& line : plan.attention) progress_.tell("launcher: attention: " + line);
  for (const auto& warning : plan.warnings) warn(warning);
}

void JobTeller::tell_journal(const Journal& journal, std::uint64_t done, std::uint64_t total) {
  for (const std::string& warning : journal.warnings()) {
    log::warning("{}", warning);
    warn(warning);
  }
  if (journal.retried() > 0) {
    const std::string again =
        fmt::format("error lines that are asked again: {}", journal.retried());
    log::info("{}", again);
    progress_.print(again);
  }
  if (journal.lines_before() > 0) {
    const std::string before = fmt::format("{} of {} lines were answered before", done, total);
    log::info("{}", before);
    progress_.print(before);
  }
}

void JobTeller::tell_preflight(const PreflightReport& report) {
  log::info("preflight:\n{}", report.table);
  progress_.print(describe(report));
  if (!check_preflight(report).ok()) progress_.tell(report.table);
  for (const Finding& finding : report.findings) {
    if (finding.is_fatal) continue;  // the error has it
    log::warning("{}", describe(finding));
    warn(describe(finding));
  }
}

void JobTeller::tell_recovery(const EngineRecovery& recovery) {
  const std::string text = describe(recovery);
  log::warning("{}", text);
  progress_.print(text);
}

void JobTeller::tell_fallback(const WidenedLayer& widened) {
  const std::string text = describe(widened);
  log::warning("{}", text);
  warn(text);
}

void JobTeller::tell_errors(const ErrorTally& tally) {
  const std::string errors = describe(tally);
  if (errors.empty()) return;
  log::info("{}", errors);
  show(errors);
}

void JobTeller::show(const std::string& text) {
  if (options_.json_progress) return progress_.print(text);
  progress_.tell(text);
}

void JobTeller::tell_wait(const std::string& message) {
  log::warning("{}", message);
  show("launcher: " + message);
}

void JobTeller::tell_files(const std::string& output, const std::string& folder) {
  if (output == standard_stream) {
    progress_.print(fmt::format("logs and report: {}/", folder));
  } else if (!options_.quiet) {
    const std::string report = folder + "/report.html";
    std::printf("answers: %s\nlogs:    %s/\n", output.c_str(), folder.c_str());
    std::error_code ignored;
    if (std::filesystem::exists(report, ignored)) std::printf("report:  %s\n", report.c_str());
  }
}

}  // namespace troupe
