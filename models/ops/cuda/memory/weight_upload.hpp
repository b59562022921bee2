#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/coded_panels.hpp"
#include "models/ops/ops.hpp"
#include "models/ops/stored_matrix.hpp"

namespace troupe {

/// Uploads weights from a checkpoint to the memory of a GPU: several threads read pieces into
/// page-locked memory, each one piece while the GPU copies its last one. Pieces that are contiguous
/// in the file and not in the page cache are read past it, if the file system can.
///
/// add() and finish() must be called on one thread.
class WeightUpload {
 public:
  struct Options {
    int device = 0;
    DType dtype = DType::bf16;  ///< of the weights on the device: f32 or bf16
    int threads = 8;
    std::int64_t piece_bytes = std::int64_t{2} << 20;  ///< per copy
  };

  /// The number of threads if `ranks` processes of this machine load at once: a share of the cores,
  /// a few each.
  static int threads_for(int ranks);

  explicit WeightUpload(const Options& options);
  /// Waits for pieces under way.
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  /// Begins to upload the parts of `matrix` to `device` [rows, columns], of the options' dtype;
  /// both must stay until finish(). Rows that no part fills are left unchanged. With `scales`
  /// [rows] f32 `device` gets codes (u8, quantize_rows.hpp): the options' dtype must be bf16 then,
  /// and a row at most a piece.
  void add(const StoredMatrix& matrix, const Tensor& device, const Tensor& scales = {});

  /// Begins to upload the codes of `matrix` in `panels` to `device` [code_bytes()] u8; without
  /// panels its 8-bit codes without groups, row by row, to `device` [rows, columns] u8. Scales of
  /// rows without groups go to `row_scales` [rows] f32. `encoding` makes codes of numbers.
  void add_codes(const StoredMatrix& matrix, WeightEncoding encoding,
                 const std::optional<CodedPanels>& panels, const Tensor& device,
                 const Tensor& row_scales);

  /// Returns when everything is uploaded; calls `progress`, if set, now and then. Errors: io, with
  /// the file; internal and resource_exhausted, with the device.
  Result<LoadedWeights> finish(const std::function<void(const LoadedWeights&)>& progress);

 private:
  /// A matrix whose codes are uploaded.
  struct Codes {
    StoredMatrix matrix;
    CodedForm form;
    std::optional<CodedPanels> panels;  ///< none: codes lie in rows
  };
  /// Rows of a part that are copied at once, or of a matrix of codes.
  struct Piece {
    StoredPart part;  ///< of codes only its rows, those of the matrix
    std::byte* device = nullptr;
    float* scales = nullptr;                       ///< of codes
    std::size_t bytes = 0;                         ///< copied
    std::shared_ptr<const Codes> codes = nullptr;  ///< in panels or in rows
  };
  class Reader;

  void add_rows(const StoredPart& part, std::int64_t row, const Tensor& device,
                const Tensor& scales);
  void push(Piece piece);
  void start_threads();
  std::optional<Piece> take();
  void fail_with(Error error);
  LoadedWeights state() const;

  Options options_;
  std::vector<std::thread> threads_;
  std::chrono::steady_clock::time_point began_{};
  std::uint64_t total_bytes_ = 0;  // used by add() and finish() only
  std::atomic<std::uint64_t> bytes_ = 0, direct_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  bool closed_ = false;  // no more pieces come
  int running_ = 0;      // threads
  std::optional<Error> error_;
};

}  // namespace troupe
