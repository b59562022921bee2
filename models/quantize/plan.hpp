#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/config/module_pattern.hpp"
#include "models/quantize/code_grid.hpp"
#include "models/quantize/gptq.hpp"
#include "models/quantize/scheme.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

struct QuantizationOptions {
  CompressionScheme scheme = QuantizationScheme::fp8;
  QuantizationMethod method = QuantizationMethod::rtn;
  ScaleChoice scales = ScaleChoice::absmax;
  std::int64_t group_columns = 128;  ///< of w4a16
  GptqOptions gptq = {};
  double sparsity = 0.25;  ///< share of channels that SparsityStructure::rows removes
  std::vector<ModulePattern> ignored = {};
};

/// A matrix that is to be quantised, or pruned.
struct MatrixPlan {
  std::string name;  ///< of its tensor: "....weight"
  std::int64_t layer = 0;
  Shape shape{0, 0};
  DType dtype = DType::bf16;  ///< as it is stored
  std::int64_t group = 0;     ///< columns that share a scale
  /// The same for matrices that vLLM multiplies as one: query, key and value, or gate and up. Of
  /// their scales for a whole matrix it keeps one, so they must be equal.
  std::string fusion = {};

  /// The module that it belongs to, as quantization_config names it.
  std::string module() const;
};

/// The matrices of a checkpoint that are quantised or pruned: projections of attention, of MLPs and
/// of experts, but for those whose module is ignored. Embeddings, norms, the head, routers and what
/// chooses keys stay as they are, and so does what the model's family does not know.
struct QuantizationPlan {
  std::map<std::string, MatrixPlan, std::less<>> matrices;  ///< by name
  /// Matrices that stay as they are although nobody asked for it, and why: a line for each kind.
  std::vector<std::string> remarks;

  const MatrixPlan* find(std::string_view name) const {
    const auto found = matrices.find(name);
    return found == matrices.end() ? nullptr : &found->second;
  }
};

/// Plans no matrices for a KvCacheScheme, whatever they are stored as. Errors: invalid_argument for
/// a checkpoint that is quantised already, and if nothing is left to quantise; those of
/// check_kv_scales and Checkpoint.
Result<QuantizationPlan> plan_quantization(const ModelConfig& config, const Checkpoint& checkpoint,
                                           const QuantizationOptions& options);

/// The numbers that a matrix's codes can be, whatever its range (see CodeGrid::with_range); the
/// scheme is a QuantizationScheme.
CodeGrid grid_of(const MatrixPlan& matrix, const QuantizationOptions& options);

/// The ranges of matrices that are to have codes. One thread at a time.
class MatrixRanges {
 public:
  /// Takes in a matrix's numbers.
  void add(const MatrixPlan& matrix, const Tensor& weights);
  /// grid_of, with the range of all that was added of the matrix's fusion.
  CodeGrid grid_of(const MatrixPlan& matrix, const QuantizationOptions& options) const;

 private:
  std::map<std::string, float, std::less<>> largest_;  // magnitudes, by fusion
};

}  // namespace troupe
