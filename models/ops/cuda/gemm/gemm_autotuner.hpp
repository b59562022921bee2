#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/ops/cuda/gemm/dense_gemm.hpp"

namespace troupe {

/// The fastest algorithms, measured on this kind of GPU with this version of cuBLASLt, by this
/// process or by an earlier one that wrote them to a file.
///
/// Tunes on a stream and memory of its own, even while another stream is being captured. Kinds
/// whose operands are too large for that get the heuristic's first suggestion.
class GemmAutotuner final : public GemmAlgorithms {
 public:
  /// Reads `file` now if it exists, and appends a line for each kind measured; "": none. A file
  /// that cannot be read or written is ignored.
  GemmAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, std::string file);
  ~GemmAutotuner() override;
  GemmAutotuner(const GemmAutotuner&) = delete;
  GemmAutotuner& operator=(const GemmAutotuner&) = delete;

  const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight,
                                     cudaStream_t stream) override;

 private:
  /// Returns nothing if they cannot be measured.
  std::optional<std::size_t> fastest(const GemmKind& kind, const void* weight,
                                     const std::vector<cublasLtMatmulAlgo_t>& candidates);
  void read_file();
  void note(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm) const;

  cublasLtHandle_t handle_;
  std::size_t workspace_bytes_;
  std::string file_;
  cudaStream_t stream_ = nullptr;
  std::map<GemmKind, cublasLtMatmulAlgo_t> chosen_;
};

/// The file in which GemmAutotuner keeps its measurements for the current device: in `troupe` in
/// the user's cache folder ($XDG_CACHE_HOME or ~/.cache), named after `what`, the GPU and
/// cuBLASLt's version. "" if the user has none.
std::string tuning_file(std::string_view what = "products");
/// Appends a whole line, so that processes may do it concurrently.
void append_tuning(const std::string& to, const std::string& line);

}  // namespace troupe
