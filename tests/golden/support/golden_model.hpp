#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "tests/golden/support/runner.hpp"

namespace troupe::golden {

/// A checkpoint with its reference outputs.
struct GoldenModel {
  std::string name;
  std::filesystem::path checkpoint;  ///< folder with config.json and weights
  std::filesystem::path logits;      ///< safetensors
  std::filesystem::path greedy;      ///< jsonl
  bool is_tiny = false;              ///< random weights: coarser bf16 tolerances
};

/// fable-moe, fable-draft and the tiny models (NAME-a, NAME-b) are in the repository, fable-dense
/// only in TROUPE_GOLDEN_DIR; none if it is not there.
std::optional<GoldenModel> golden_model(const std::string& name);

/// The names of all golden models, and those of the tiny ones.
std::vector<std::string> golden_model_names();
std::vector<std::string> tiny_model_names();
/// A golden model's name as part of a test's name.
std::string name_in_test(std::string name);

/// TROUPE_GOLDEN_DIR; empty if it was not given or is not there.
std::filesystem::path outside_folder();

/// Why a model is missing, for GTEST_SKIP.
std::string missing_model_message(const std::string& name);

/// The folder tests/data/golden.
std::filesystem::path data_folder();

/// Makes the Ops that load() uses: the CPU's, unless a program overrides these functions.
/// `deterministic`: bits do not depend on the batch, as they never do on the CPU; `encoding`: of
/// the weights that they will multiply, if it is made at load.
Result<std::unique_ptr<Ops>> make_golden_ops(DType precision, int rank = 0,
                                             bool deterministic = false,
                                             WeightEncoding encoding = WeightEncoding::plain);
/// The most ranks that can run at the same time.
int max_golden_ranks();
/// Returns the collectives for tensors of `ops`, for a rank whose group is `host`; null if `host`
/// serves them too.
Result<std::unique_ptr<Collectives>> join_golden_ranks(Ops& ops, Collectives& host);

/// A model on one rank, ready to run sequences.
struct LoadedModel {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<Runner> runner;
};

/// `precision` f32 or bf16, of weights and KV cache alike.
Result<LoadedModel> load(const std::filesystem::path& folder, DType precision,
                         const ParallelContext& parallel = {});
/// The same on `ops`, which were made for `precision`; `exact_sums`: see ModelLimits; `kv_codes`:
/// the KV cache's dtype in place of `precision`.
Result<LoadedModel> load(const std::filesystem::path& folder, DType precision,
                         const ParallelContext& parallel, std::unique_ptr<Ops> ops,
                         bool exact_sums = false, std::optional<DType> kv_codes = {},
                         const KvResiduals& kv_residuals = {},
                         WeightEncoding encoding = WeightEncoding::plain,
                         std::optional<bool> quantize_head = {});

/// load() with numbers in place of some of the checkpoint's weights.
Result<LoadedModel> load_substituted(const std::filesystem::path& folder, DType precision,
                                     const Checkpoint::Substitute& substitute,
                                     WeightEncoding encoding = WeightEncoding::plain);

/// One prompt of a logits file.
struct GoldenPrompt {
  std::string id;
  std::vector<std::int32_t> ids;
  std::vector<float> last_logits;      // [vocab]
  std::vector<std::int32_t> top_ids;   // [n, 20]
  std::vector<float> top_logprobs;     // [n, 20]
  std::vector<float> prompt_logprobs;  // [n - 1]
};
Result<std::vector<GoldenPrompt>> read_prompts(const std::filesystem::path& file);

/// One line of a greedy file.
struct GoldenAnswer {
  std::string id;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> output;
  std::size_t safe_steps = 0;  ///< output tokens before the first gap < 1e-3
  double min_router_gap = 1.0;
};
Result<std::vector<GoldenAnswer>> read_answers(const std::filesystem::path& file);

/// The reference figures of perplexity.json and their windows.
struct GoldenPerplexity {
  double nll_f32 = 0.0;
  double nll_bf16 = 0.0;
  std::vector<double> window_nll;  ///< fp32, each rounded to five digits
};
Result<GoldenPerplexity> read_perplexity(const std::string& model);
Result<std::vector<std::vector<std::int32_t>>> read_windows();

/// Mean negative log-likelihood of tokens 1.. of a window that is fed alone.
Result<double> window_nll(Runner& runner, const std::vector<std::int32_t>& window);

}  // namespace troupe::golden
