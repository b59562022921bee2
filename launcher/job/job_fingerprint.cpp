#include "launcher/job/job_fingerprint.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/ranges.h>

#include "launcher/batch/input/byte_source.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// The header of a safetensors file: its length as 8 bytes, then JSON.
std::uint64_t header_bytes(const fs::path& file) {
  std::array<unsigned char, 8> bytes{};
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(bytes.data()), bytes.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) length |= std::uint64_t{bytes[i]} << (8 * i);
  constexpr std::uint64_t longest = std::uint64_t{1} << 30;
  return bytes.size() + std::min(length, longest);
}

/// One hash over the marks of those of `names` that the folder has.
Result<std::string> mark_of_files(const std::string& folder,
                                  const std::vector<std::string>& names) {
  std::string marks;
  for (const std::string& name : names) {
    const fs::path file = fs::path(folder) / name;
    if (!fs::is_regular_file(file)) continue;
    const bool weights = file.extension() == ".safetensors";
    TROUPE_TRY(const auto mark,
               content_mark(file.string(), weights ? header_bytes(file) : UINT64_MAX));
    marks += fmt::format("{}: {}\n", name, mark);
  }
  const auto hash = hash_128(marks);
  return fmt::format("hash {:016x}{:016x}", hash.first, hash.second);
}

std::vector<std::string> weight_files(const std::string& folder) {
  std::vector<std::string> names{"config.json", "model.safetensors.index.json"};
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<Fingerprint> job_fingerprint(const JobPlan& plan, const KeepGoing& keep_going) {
  const Config& config = plan.config;
  Fingerprint fingerprint;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  fingerprint.identity = {make_job_id(config.name, config.job.input),
                          std::chrono::duration_cast<std::chrono::seconds>(since_1970).count()};
  std::string input = "a pipe";
  if (is_rereadable(config.job.input)) {
    TROUPE_TRY(input, content_mark(config.job.input, UINT64_MAX, keep_going));
  }
  const std::string& model = config.model.path;
  TROUPE_TRY(auto weights, mark_of_files(model, weight_files(model)));
  TROUPE_TRY(auto text, mark_of_files(model, {"tokenizer.json", "tokenizer_config.json",
                                              "chat_template.jinja", "chat_template.json"}));
  TROUPE_TRY(auto defaults, mark_of_files(model, {"generation_config.json"}));
  fingerprint.parts = {
      {"the input", std::move(input)},
      {"the model (config.json, tensor headers, file sizes)", std::move(weights)},
      {"the tokenizer and chat template", std::move(text)},
      {"generation_config.json", std::move(defaults)},
      {"model.load_format", config.model.load_format == "dummy" ? "dummy" : "safetensors"},
      {"model.served_model_name",
       fmt::format("{}", fmt::join(config.model.served_model_name, ", "))},
      {"the dtype", plan.engine.bf16 ? "bfloat16" : "float32"},
      {"engine.max_model_len", fmt::format("{}", plan.engine.max_model_len)},
      {"job.seed", fmt::format("{}", config.job.seed)},
  };
  // Without it answers of GPUs may differ anyway; CPUs have bits of their own.
  if (plan.engine.deterministic) {
    fingerprint.parts.push_back({"engine.deterministic on GPUs", "true"});
  }
  return fingerprint;
}

}  // namespace troupe
