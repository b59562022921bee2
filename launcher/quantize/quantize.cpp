#include "launcher/quantize/quantize.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/quantize/quantize_job.hpp"
#include "runtime/base/format_bytes.hpp"
#include "runtime/base/sync.hpp"

namespace troupe {
namespace {

/// Tells of the end by a signal, which it then is.
void on_stop(int signal) {
  constexpr std::string_view text = "launcher: stopped; the same command goes on where it was\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  (void)::raise(signal);
}

/// Once only: the second time a signal does what it does by default.
void tell_of_stops() {
  struct sigaction action{};
  action.sa_handler = on_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) (void)::sigaction(signal, &action, nullptr);
}

ExitCode end(const Error& error, ExitCode code) {
  std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
  return code;
}

/// A matrix's name within its layer.
std::string name_in_layer(const std::string& name, std::int64_t layer) {
  const std::string number = fmt::format(".{}.", layer);
  const std::size_t found = name.find(number);
  std::string rest = found == std::string::npos ? name : name.substr(found + number.size());
  constexpr std::string_view suffix = ".weight";
  if (rest.ends_with(suffix)) rest.resize(rest.size() - suffix.size());
  return rest;
}

/// The line of a layer: its matrices' errors together, and the worst of them.
std::string line_of(const nlohmann::json& figures) {
  double worst = 0.0;
  std::string name;
  for (const auto& matrix : figures.at("matrices")) {
    const auto error = matrix.at("relative_error").get<double>();
    if (error < worst) continue;
    worst = error;
    name = matrix.at("name").get<std::string>();
  }
  const auto layer = figures.at("layer").get<std::int64_t>();
  return fmt::format("{:>5} {:>10.4f} {:>8.4f} {:>9} {:>9} {:>7.1f}  {}\n", layer,
                     figures.at("divergence").get<double>(), worst,
                     format_bytes(figures.at("bytes_before").get<std::uint64_t>()),
                     figures.value("kept", false)
                         ? "kept"
                         : format_bytes(figures.at("bytes_after").get<std::uint64_t>()),
                     figures.at("seconds").get<double>(), name_in_layer(name, layer));
}

std::string summary(const QuantizeJob& job, const QuantizeOptions& options) {
  std::string text = "layer divergence    worst    before     after seconds  the worst matrix\n";
  std::map<std::string, std::int64_t> rounded;
  for (std::int64_t layer = 0; layer < job.layers(); ++layer) {
    const nlohmann::json& figures = job.figures(layer);
    text += line_of(figures);
    for (const auto& matrix : figures.at("matrices")) ++rounded[matrix.at("method")];
  }
  text +=
      fmt::format("{} -> {}", format_bytes(job.bytes_before()), format_bytes(job.bytes_after()));
  for (const auto& [method, count] : rounded) text += fmt::format(", {} by {}", count, method);
  text += "\n";
  if (options.quantization.method != QuantizationMethod::rtn && rounded.contains("rtn")) {
    text += fmt::format("{} matrices saw too few inputs for {} and are rounded to nearest\n",
                        rounded["rtn"], to_string(options.quantization.method));
  }
  if (options.quantization.method == QuantizationMethod::wanda && rounded.contains("magnitude")) {
    text += fmt::format("{} matrices saw too few inputs for wanda and are judged by magnitude\n",
                        rounded["magnitude"]);
  }
  return text +
         fmt::format("next: launcher eval --model {} \\\n          --against {} --text FILE{}\n",
                     options.model, options.output,
                     is_about_kv(options.quantization.scheme)
                         ? " --against-set kv_cache.dtype=fp8_e4m3"
                         : "");
}

/// sensitive_layers.json: the layers that lost the most first.
nlohmann::ordered_json sensitive_layers(const QuantizeJob& job, const QuantizeOptions& options) {
  std::vector<nlohmann::ordered_json> layers;
  for (std::int64_t layer = 0; layer < job.layers(); ++layer) {
    const nlohmann::json& figures = job.figures(layer);
    nlohmann::ordered_json matrices = nlohmann::ordered_json::array();
    for (const auto& matrix : figures.at("matrices"))
      matrices.push_back(nlohmann::ordered_json(matrix));
    layers.push_back({{"layer", layer},
                      {"divergence", figures.at("divergence")},
                      {"kept", figures.value("kept", false)},
                      {"bytes_before", figures.at("bytes_before")},
                      {"bytes_after", figures.at("bytes_after")},
                      {"matrices", matrices}});
  }
  std::ranges::stable_sort(layers, std::ranges::greater(), [](const auto& layer) {
    return layer.at("divergence").template get<double>();
  });
  return {{"scheme", to_string(options.quantization.scheme)},
          {"method", to_string(options.quantization.method)},
          {"measured_on_windows", job.windows()},
          {"layers", layers}};
}

}  // namespace

ExitCode run_quantize(const QuantizeOptions& options) {
  auto job = QuantizeJob::prepare(options);
  if (!job.ok()) return end(job.error(), ExitCode::refused);
  if (const auto opened = (*job)->open_output(); !opened.ok()) {
    return end(opened.error(), ExitCode::refused);
  }
  tell_of_stops();
  if (!options.quiet) {
    for (const std::string& remark : (*job)->plan().remarks) {
      std::fprintf(stderr, "launcher: %s\n", remark.c_str());
    }
  }
  if (const auto made = (*job)->run(); !made.ok()) return end(made.error(), ExitCode::failed);
  const auto path = std::filesystem::path(options.output) / "sensitive_layers.json";
  const auto written = write_synced(path.string(), sensitive_layers(**job, options).dump(2) + "\n");
  if (!written.ok()) return end(written.error(), ExitCode::failed);
  std::fputs(summary(**job, options).c_str(), stdout);
  if (const auto done = (*job)->finish(); !done.ok()) return end(done.error(), ExitCode::failed);
  return ExitCode::all_answered;
}

}  // namespace troupe
