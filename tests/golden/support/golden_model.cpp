#include "tests/golden/support/golden_model.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "models/families/family.hpp"

namespace troupe::golden {

namespace {

constexpr std::int64_t blocks = 1024;

/// The repository: where this was built, unless the data is in the current folder (a packed build
/// on another machine).
std::filesystem::path source_folder() {
  std::error_code problem;
  const auto here = std::filesystem::current_path(problem);
  return std::filesystem::exists(here / "tests/data/golden", problem)
             ? here
             : std::filesystem::path(TROUPE_SOURCE_DIR);
}

GoldenModel in_repository(const std::string& name, const std::filesystem::path& checkpoint) {
  const std::filesystem::path data = data_folder() / name;
  return {name, checkpoint, data / "logits.safetensors", data / "greedy.jsonl", false};
}

}  // namespace

std::filesystem::path data_folder() { return source_folder() / "tests/data/golden"; }

std::filesystem::path outside_folder() {
  const std::filesystem::path folder = TROUPE_GOLDEN_DIR;
  return std::filesystem::exists(folder) ? folder : std::filesystem::path();
}

std::optional<GoldenModel> golden_model(const std::string& name) {
  if (name == "fable-moe") {
    return in_repository(name, source_folder() / "configs/demo" / name);
  }
  GoldenModel model = in_repository(name, data_folder() / name);
  if (std::filesystem::exists(model.checkpoint)) {
    model.is_tiny = !name.starts_with("fable");
    return model;
  }
  const std::filesystem::path outside = outside_folder();
  if (outside.empty() || !std::filesystem::exists(outside / "models" / name)) return std::nullopt;
  return GoldenModel{name, outside / "models" / name,
                     outside / "golden" / fmt::format("logits-{}.safetensors", name),
                     outside / "golden" / fmt::format("greedy-{}.jsonl", name), false};
}

std::vector<std::string> tiny_model_names() {
  return {"qwen3moe-a",   "llama-a",   "llama-a-sharded", "mistral-a",   "mixtral-a",   "qwen2-a",
          "deepseek3-a",  "gemma2-a",  "gemma3-a",        "gptoss-a",    "qwen2moe-a",  "phi3-a",
          "olmo2-a",      "granite-a", "glm-a",           "glm4-a",      "glm4moe-a",   "cohere-a",
          "starcoder2-a", "falcon-a",  "falcon-b",        "deepseek2-a", "deepseek32-a"};
}

std::vector<std::string> golden_model_names() {
  std::vector<std::string> names = tiny_model_names();
  names.insert(names.begin(), {"fable-moe", "fable-draft", "fable-dense"});
  return names;
}

std::string name_in_test(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string missing_model_message(const std::string& name) {
  return fmt::format(
      "{} is not in the repository; set TROUPE_GOLDEN_DIR (found \"{}\") "
      "to "
      "a folder with models/{} to run this",
      name, TROUPE_GOLDEN_DIR, name);
}

Result<LoadedModel> load(const std::filesystem::path& folder, DType precision,
                         const ParallelContext& parallel) {
  TROUPE_TRY(auto ops, make_golden_ops(precision));
  return load(folder, precision, parallel, std::move(ops));
}

namespace {

Result<LoadedModel> load_from(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                              DType precision, const ParallelContext& parallel,
                              std::unique_ptr<Ops> ops, bool exact_sums = false,
                              std::optional<DType> kv_codes = {},
                              const KvResiduals& kv_residuals = {},
                              WeightEncoding encoding = WeightEncoding::plain,
                              std::optional<bool> quantize_head = {}) {
  LoadedModel loaded;
  loaded.ops = std::move(ops);
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  ModelLimits limits;
  limits.max_batch_tokens = 512;
  limits.max_head_rows = 512;
  limits.compute = precision;
  limits.kv_dtype = kv_codes.value_or(precision);
  limits.kv_residuals = kv_residuals;
  limits.exact_sums = exact_sums;
  limits.encoding = encoding;
  limits.quantize_head = quantize_head;
  TROUPE_TRY(loaded.model, load_model(config, checkpoint, *loaded.ops, parallel, limits));
  TROUPE_TRY(loaded.runner,
             Runner::create(*loaded.ops, *loaded.model, blocks, parallel.mesh.shape().context));
  if (parallel.dense.host != nullptr) {
    loaded.runner->share_dense_layers(*parallel.dense.host, parallel.mesh.shape().tensor);
  }
  return loaded;
}

}  // namespace

Result<LoadedModel> load(const std::filesystem::path& folder, DType precision,
                         const ParallelContext& parallel, std::unique_ptr<Ops> ops, bool exact_sums,
                         std::optional<DType> kv_codes, const KvResiduals& kv_residuals,
                         WeightEncoding encoding, std::optional<bool> quantize_head) {
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  return load_from(folder, checkpoint, precision, parallel, std::move(ops), exact_sums, kv_codes,
                   kv_residuals, encoding, quantize_head);
}

Result<LoadedModel> load_substituted(const std::filesystem::path& folder, DType precision,
                                     const Checkpoint::Substitute& substitute,
                                     WeightEncoding encoding) {
  TROUPE_TRY(auto ops, make_golden_ops(precision));
  TROUPE_TRY(Checkpoint checkpoint, Checkpoint::open(folder));
  checkpoint.set_substitute(substitute);
  return load_from(folder, checkpoint, precision, {}, std::move(ops), false, {}, {}, encoding);
}

Result<double> window_nll(Runner& runner, const std::vector<std::int32_t>& window) {
  Sequence sequence{window};
  std::vector<float> logits;
  TROUPE_CHECK(runner.feed(sequence, 512, logits));
  runner.release(sequence);
  const auto vocab = static_cast<std::size_t>(runner.config().vocab_size);
  double sum = 0.0;
  for (std::size_t i = 0; i + 1 < window.size(); ++i) {
    const auto logprobs = log_softmax(std::span(logits).subspan(i * vocab, vocab));
    sum -= logprobs[static_cast<std::size_t>(window[i + 1])];
  }
  return sum / static_cast<double>(window.size() - 1);
}

}  // namespace troupe::golden
