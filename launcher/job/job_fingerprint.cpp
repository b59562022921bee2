#include "launcher/job/job_fingerprint.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "launcher/batch/input/byte_source.hpp"
#include "models/checkpoint/files_with_extension.hpp"
#include "runtime/base/content_mark.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// One hash over the marks of those files in `names` that exist in the folder.
Result<std::string> mark_of_files(const std::string& folder,
                                  const std::vector<std::string>& names) {
  std::string marks;
  for (const std::string& name : names) {
    const fs::path file = fs::path(folder) / name;
    if (!fs::is_regular_file(file)) continue;
    TROUPE_TRY(const auto mark, content_mark(file.string()));
    marks += fmt::format("{}: {}\n", name, mark);
  }
  return "hash " + to_hex(hash_128(marks));
}

std::string time_of_change(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return "an unknown time";
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z", fmt::gmtime(status.st_mtim.tv_sec),
                     status.st_mtim.tv_nsec);
}

Result<void> add_weights(const std::string& folder, Fingerprint& fingerprint) {
  for (const fs::path& file : files_with_extension(folder, {".safetensors", ".gguf"})) {
    const std::string name = file.filename();
    TROUPE_TRY(std::string mark, sampled_mark(file.string()));
    fingerprint.parts.push_back({fmt::format("the weights in {}", name), std::move(mark)});
    fingerprint.weight_times.push_back({name, time_of_change(file)});
  }
  return {};
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
    TROUPE_TRY(input, content_mark(config.job.input, keep_going));
  }
  const std::string& model = config.model.path;
  TROUPE_TRY(auto shape, mark_of_files(model, {"config.json", "model.safetensors.index.json"}));
  TROUPE_TRY(auto text, mark_of_files(model, {"tokenizer.json", "tokenizer_config.json",
                                              "special_tokens_map.json", "chat_template.jinja",
                                              "chat_template.json"}));
  TROUPE_TRY(auto defaults, mark_of_files(model, {"generation_config.json"}));
  fingerprint.parts = {
      {"the input", std::move(input)},
      {"the model's config.json and index", std::move(shape)},
      {"the tokenizer and chat template", std::move(text)},
      {"generation_config.json", std::move(defaults)},
      {"model.load_format", config.model.load_format == "dummy" ? "dummy" : "safetensors"},
      {"model.served_model_name",
       fmt::format("{}", fmt::join(config.model.served_model_name, ", "))},
      {"the dtype", plan.engine.dtype == DType::bf16 ? "bfloat16" : "float32"},
      {"engine.max_model_len", fmt::format("{}", plan.engine.max_model_len)},
      {"job.seed", fmt::format("{}", config.job.seed)},
      {"job.ordered", config.job.ordered ? "true" : "false"},
  };
  if (config.job.num_shards > 1) {
    fingerprint.parts.push_back({"job.shard_index", fmt::format("{} of {}", config.job.shard_index,
                                                                config.job.num_shards)});
  }
  // Otherwise answers of GPUs may differ anyway; CPUs have bits of their own.
  if (plan.engine.deterministic) {
    fingerprint.parts.push_back({"engine.deterministic on GPUs", "true"});
  }
  if (plan.engine.encoding != WeightEncoding::plain) {
    fingerprint.parts.push_back({"model.quantization", config.model.quantization});
  }
  if (const auto& is_asked = config.model.quantize_lm_head) {
    fingerprint.parts.push_back({"model.quantize_lm_head", *is_asked ? "true" : "false"});
  }
  if (std::isfinite(plan.engine.max_activation)) {
    fingerprint.parts.push_back(
        {"precision",
         fmt::format("{} above {:g}", config.precision.fallback, plan.engine.max_activation)});
  }
  if (plan.engine.kv_codes) {
    fingerprint.parts.push_back({"kv_cache.dtype", std::string(to_string(*plan.engine.kv_codes))});
  }
  if (const KvResiduals& residuals = plan.engine.kv_residuals; residuals != KvResiduals()) {
    fingerprint.parts.push_back(
        {"kv_cache.residual", residuals.layers.empty()
                                  ? config.kv_cache.residual
                                  : fmt::format("{} in {}", config.kv_cache.residual,
                                                fmt::join(residuals.layers, ", "))});
  }
  const KvPolicy& policy = plan.engine.kv_policy;
  if (!policy.is_full()) {
    fingerprint.parts.push_back({"kv_cache", describe(policy)});
  }
  if (plan.engine.load_format != LoadFormat::dummy) TROUPE_CHECK(add_weights(model, fingerprint));
  return fingerprint;
}

}  // namespace troupe
