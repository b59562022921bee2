#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"

namespace troupe {

/// The algorithms that earlier processes chose for kinds of GEMMs, a line each: n, k, rows,
/// segments, the types of x and of the result, and the algorithm's words as cuBLASLt made them, all
/// 0 for none of cuBLASLt's. A file that cannot be read or written is ignored.
class TuningFile {
 public:
  struct Line {
    GemmKind kind;
    std::optional<cublasLtMatmulAlgo_t> algorithm;
  };

  /// "": no file.
  explicit TuningFile(std::string path) : path_(std::move(path)) {}
  /// In `troupe` in the user's cache folder ($XDG_CACHE_HOME or ~/.cache), named after `what`, the
  /// current GPU and cuBLASLt's version. No file if the user has no such folder.
  static TuningFile of_user(std::string_view what);

  /// Leaves out lines of another form.
  std::vector<Line> read() const;
  /// Several processes may append at the same time.
  void append(const Line& line) const;

 private:
  std::string path_;
};

}  // namespace troupe
