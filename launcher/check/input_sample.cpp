#include "launcher/check/input_sample.hpp"

#include <utility>
#include <variant>

#include <fmt/format.h>

#include "launcher/batch/input/batch_reader.hpp"
#include "launcher/job/job_files.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_shown = 5;

void note(InputSample& sample, InputSample::Problem problem) {
  ++sample.bad;
  ++sample.by_code[problem.code];
  if (sample.first.size() < max_shown) sample.first.push_back(std::move(problem));
}

}  // namespace

Result<InputSample> sample_input(const JobPlan& plan, std::size_t max_lines) {
  const Config& config = plan.config;
  TROUPE_TRY(BatchReader reader,
             BatchReader::open(config.job.input,
                               {plan.model_names, static_cast<std::uint64_t>(config.job.seed)}, {},
                               shard_of(config.job)));
  InputSample sample;
  while (sample.lines < max_lines) {
    TROUPE_TRY(BatchReader::Item item, reader.next());
    if (std::holds_alternative<BatchReader::End>(item)) {
      sample.is_all = true;
      break;
    }
    ++sample.lines;
    if (auto* error = std::get_if<LineError>(&item)) {
      note(sample, {error->line, std::move(error->code), std::move(error->message)});
    } else if (auto* request = std::get_if<BatchRequest>(&item)) {
      const std::size_t line = request->header.line;
      auto prepared = plan.preprocessor->prepare(std::move(request->request));
      if (auto* refused = std::get_if<Completion>(&prepared)) {
        note(sample, {line, std::move(refused->error_code), std::move(refused->error)});
      }
    }
  }
  return sample;
}

std::string describe(const InputSample& sample, const std::string& input) {
  const std::string lines = fmt::format("{}{} line{}", sample.is_all ? "all " : "the first ",
                                        sample.lines, sample.lines == 1 ? "" : "s");
  if (sample.lines == 0) return fmt::format("input {}: empty\n", input);
  if (sample.bad == 0) return fmt::format("input {}: {} can run\n", input, lines);
  std::string text = fmt::format("input {}: of {}, {} cannot run and would have an error line each",
                                 input, lines, sample.bad);
  for (const auto& [code, count] : sample.by_code) {
    text +=
        fmt::format("{}{} {}", code == sample.by_code.begin()->first ? " (" : ", ", count, code);
  }
  text += ")\n";
  for (const auto& problem : sample.first) {
    text += fmt::format("  line {}: {}: {}\n", problem.line, problem.code, problem.message);
  }
  return text;
}

}  // namespace troupe
