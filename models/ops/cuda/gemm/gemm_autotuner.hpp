#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/ops/cuda/gemm/dense_gemm.hpp"

namespace troupe {

/// The fastest algorithms, as they were measured on this kind of GPU with this version of cuBLASLt:
/// now, or by an earlier process that wrote them to a file.
///
/// Measuring is done on a stream and memory of its own: also while another stream is captured into
/// a graph. Kinds whose operands are too large for that get cuBLASLt's first advice.
class GemmAutotuner final : public GemmAlgorithms {
 public:
  /// `file` is read now if it is there, and gets a line for each kind that is measured; "": none.
  /// A file that cannot be read or written is done without.
  GemmAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, std::string file);
  ~GemmAutotuner() override;
  GemmAutotuner(const GemmAutotuner&) = delete;
  GemmAutotuner& operator=(const GemmAutotuner&) = delete;

  const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight,
                                     cudaStream_t stream) override;

 private:
  /// Nothing if they cannot be measured.
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

/// Where GemmAutotuner keeps what it measured on the current device: in `troupe` in the user's
/// cache folder ($XDG_CACHE_HOME or ~/.cache), named `what`, after the GPU and after cuBLASLt's
/// version.
/// "" if the user has none.
std::string tuning_file(std::string_view what = "products");
/// Appends a line, whole, so that processes may do it at the same time.
void append_tuning(const std::string& to, const std::string& line);

}  // namespace troupe
