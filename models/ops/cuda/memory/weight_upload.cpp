#include "models/ops/cuda/memory/weight_upload.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/fp8_rows.hpp"

namespace troupe {
namespace {

constexpr std::size_t page = 4096;
/// Smaller reads are not worth bypassing the page cache.
constexpr std::size_t min_direct_bytes = std::size_t{1} << 20;
constexpr auto progress_interval = std::chrono::milliseconds(100);

std::byte* page_of(const void* address) {
  return std::bit_cast<std::byte*>(std::bit_cast<std::uintptr_t>(address) / page * page);
}

/// True if most of these mapped bytes are in the page cache, as far as the kernel reports.
bool is_cached(const std::byte* data, std::size_t bytes) {
  std::array<unsigned char, 4096> pages{};
  std::byte* begin = page_of(data);
  const auto whole = static_cast<std::size_t>(data - begin) + bytes;
  const std::size_t looked_at = std::min(whole, pages.size() * page);
  if (::mincore(begin, looked_at, pages.data()) != 0) return true;
  const std::size_t count = (looked_at + page - 1) / page;
  const auto there =
      std::count_if(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(count),
                    [](unsigned char state) { return (state & 1) != 0; });
  return static_cast<std::size_t>(there) * 2 >= count;
}

Error read_error(int file, std::uint64_t offset, int error) {
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), unknown);
  if (error == 0) {
    return fail(ErrorCode::io, "{}: ends before byte {} (was it cut short?)", path.string(),
                offset);
  }
  return fail_errno(error, fmt::format("cannot read {} at byte {}", path.string(), offset));
}

/// Reads `bytes` at `offset`.
Result<void> read_all(int file, std::uint64_t offset, std::size_t bytes, std::byte* to) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::pread(file, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return read_error(file, offset + done, count < 0 ? errno : 0);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

/// Reads at least `bytes` from a multiple of the page size on, past the page cache; false if that
/// is not supported here.
bool read_direct(int file, std::uint64_t offset, std::size_t bytes, std::byte* to) {
  const std::size_t room = (bytes + page - 1) / page * page;
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::pread(file, to + done, room - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
    if (done < bytes && done % page != 0) return false;
  }
  return true;
}

}  // namespace

/// One thread's part: reads pieces and makes the GPU copy them, double-buffered.
class WeightUpload::Reader {
 public:
  explicit Reader(WeightUpload& upload) : upload_(upload) {}
  ~Reader() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (Buffer& buffer : buffers_) {
      if (buffer.copied != nullptr) cudaEventDestroy(buffer.copied);
      if (buffer.memory != nullptr) cudaFreeHost(buffer.memory);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaFree(numbers_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Result<void> run() {
    TROUPE_CHECK(check(cudaSetDevice(upload_.options_.device), "cudaSetDevice"));
    TROUPE_CHECK(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
    for (std::size_t turn = 0; const auto piece = upload_.take(); turn = 1 - turn) {
      TROUPE_CHECK(bring(*piece, buffers_[turn]));
    }
    return check(cudaStreamSynchronize(stream_), "copying weights");
  }

 private:
  struct Buffer {
    std::byte* memory = nullptr;   // page-locked, room for a piece and a page on either side
    cudaEvent_t copied = nullptr;  // its content has been copied
    std::size_t bytes = 0;
  };

  Result<void> check(cudaError_t error, std::string_view what) const {
    if (error == cudaSuccess) return {};
    const bool memory = error == cudaErrorMemoryAllocation;
    return fail(memory ? ErrorCode::resource_exhausted : ErrorCode::internal,
                "device {}: {} failed while weights were read: {} ({})", upload_.options_.device,
                what, cudaGetErrorString(error), cudaGetErrorName(error));
  }

  Result<void> make(Buffer& buffer) const {
    const auto room = static_cast<std::size_t>(upload_.options_.piece_bytes) + 2 * page;
    void* memory = nullptr;
    TROUPE_CHECK(check(cudaHostAlloc(&memory, room, cudaHostAllocDefault), "page-locked memory"));
    buffer.memory = static_cast<std::byte*>(memory);
    return check(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming), "an event");
  }

  Result<void> bring(const Piece& piece, Buffer& buffer) {
    if (buffer.memory == nullptr) {
      TROUPE_CHECK(make(buffer));
    } else {
      TROUPE_CHECK(check(cudaEventSynchronize(buffer.copied), "copying weights"));
      upload_.bytes_ += std::exchange(buffer.bytes, 0);
    }
    if (piece.codes != nullptr) {
      return piece.codes->panels ? bring_panels(piece, buffer) : bring_row_codes(piece, buffer);
    }
    TROUPE_TRY(const std::byte* from, read(piece, buffer.memory));
    TROUPE_TRY(std::byte * to, destination_of(piece));
    TROUPE_CHECK(check(cudaMemcpyAsync(to, from, piece.bytes, cudaMemcpyHostToDevice, stream_),
                       "copying weights"));
    if (piece.scales != nullptr) TROUPE_CHECK(quantize(piece, to));
    buffer.bytes = piece.bytes;
    return check(cudaEventRecord(buffer.copied, stream_), "copying weights");
  }

  /// Writes panels, and behind them the scales of their rows.
  Result<void> bring_panels(const Piece& piece, Buffer& buffer) {
    const auto& [matrix, form, has_panels] = *piece.codes;
    const CodedPanels& panels = *has_panels;
    const Slice rows = piece.part.rows;
    const std::int64_t bytes = rows.count / panel_rows * panels.panel_bytes();
    auto* const scales = reinterpret_cast<float*>(buffer.memory + bytes);
    rows_.resize(static_cast<std::size_t>(panel_rows));
    std::byte* to = buffer.memory;
    for (std::int64_t r = 0; r < rows.count; r += panel_rows, to += panels.panel_bytes()) {
      for (std::int64_t i = 0; i < panel_rows; ++i) {
        CodedRow& row = rows_[static_cast<std::size_t>(i)];
        read_coded_row(matrix, form, rows.begin + r + i, row);
        if (piece.scales == nullptr) continue;
        scales[r + i] = panels.group_columns > 0 ? row.row_scale : row.scales.front().scale;
      }
      write_panel(rows_, form, panels, to);
    }
    return copy_codes(piece, buffer, bytes, scales);
  }

  /// Writes codes row by row, and behind them the scales of rows.
  Result<void> bring_row_codes(const Piece& piece, Buffer& buffer) {
    const auto& [matrix, form, panels] = *piece.codes;
    const Slice rows = piece.part.rows;
    const std::int64_t bytes = rows.count * matrix.columns;
    auto* const scales = reinterpret_cast<float*>(buffer.memory + bytes);
    rows_.resize(1);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      CodedRow& row = rows_.front();
      read_coded_row(matrix, form, rows.begin + r, row);
      std::memcpy(buffer.memory + r * matrix.columns, row.codes.data(), row.codes.size());
      scales[r] = row.scales.front().scale;
    }
    return copy_codes(piece, buffer, bytes, scales);
  }

  /// Copies `bytes` of codes, and `scales` if the piece has any.
  Result<void> copy_codes(const Piece& piece, Buffer& buffer, std::int64_t bytes,
                          const float* scales) {
    TROUPE_CHECK(check(cudaMemcpyAsync(piece.device, buffer.memory, static_cast<std::size_t>(bytes),
                                       cudaMemcpyHostToDevice, stream_),
                       "copying codes"));
    if (piece.scales != nullptr) {
      TROUPE_CHECK(
          check(cudaMemcpyAsync(piece.scales, scales,
                                static_cast<std::size_t>(piece.part.rows.count) * sizeof(float),
                                cudaMemcpyHostToDevice, stream_),
                "copying scales"));
    }
    buffer.bytes = piece.bytes;
    return check(cudaEventRecord(buffer.copied, stream_), "copying codes");
  }

  /// Makes the codes of a piece whose numbers are at `from` on the device.
  Result<void> quantize(const Piece& piece, const std::byte* from) {
    const StoredPart& part = piece.part;
    const CodedRows codes{reinterpret_cast<std::uint8_t*>(piece.device), piece.scales};
    if (part.cols.count == part.matrix.view[1] || part.row_step != 0) {
      return check(launch_quantize_rows(from, part.rows.count, part.cols.count, codes, stream_),
                   "quantising weights");
    }
    const std::vector<float> scales = fp8_scales(part, upload_.options_.dtype);
    TROUPE_CHECK(check(cudaMemcpyAsync(codes.scales, scales.data(), scales.size() * sizeof(float),
                                       cudaMemcpyHostToDevice, stream_),
                       "copying scales"));
    // Memory that is not page-locked has been read when the call returns.
    return check(
        launch_quantize_scaled_rows(from, part.rows.count, part.cols.count, codes, stream_),
        "quantising weights");
  }

  /// Where the piece's numbers go: to their place, or to where they become codes.
  Result<std::byte*> destination_of(const Piece& piece) {
    if (piece.scales == nullptr) return piece.device;
    if (numbers_ == nullptr) {
      TROUPE_CHECK(check(
          cudaMalloc(&numbers_, static_cast<std::size_t>(upload_.options_.piece_bytes)), "memory"));
    }
    return static_cast<std::byte*>(numbers_);
  }

  /// Returns where in `memory` the piece begins.
  Result<const std::byte*> read(const Piece& piece, std::byte* memory) {
    const StoredPart& part = piece.part;
    const Tensor& view = part.matrix.view;
    const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
    const std::int64_t first = part.rows.begin * view[1] + part.cols.begin;
    const auto* mapped = static_cast<const std::byte*>(view.data()) + first * size;
    const bool in_one = part.cols.count == view[1] || part.rows.count == 1;
    const bool is_plain = part.matrix.format == nullptr && part.row_step == 0;
    if (part.matrix.file < 0 || !in_one || !is_plain || view.dtype() != upload_.options_.dtype) {
      const bool lies_in_rows = part.matrix.format == nullptr || part.matrix.format->has_byte_codes;
      if (part.row_step == 0 && lies_in_rows) prefetch(piece, mapped);
      copy_rows(part, 0, part.rows.count, upload_.options_.dtype, memory);
      return memory;
    }
    const std::uint64_t offset = part.matrix.offset + static_cast<std::uint64_t>(first * size);
    if (part.matrix.direct_file >= 0 && piece.bytes >= min_direct_bytes &&
        !is_cached(mapped, piece.bytes)) {
      const std::size_t before = offset % page;
      if (read_direct(part.matrix.direct_file, offset - before, before + piece.bytes, memory)) {
        upload_.direct_bytes_ += piece.bytes;
        return memory + before;
      }
    }
    TROUPE_CHECK(read_all(part.matrix.file, offset, piece.bytes, memory));
    return memory;
  }

  /// Prefetches rows that are read through the mapping in one request.
  static void prefetch(const Piece& piece, const std::byte* mapped) {
    const StoredPart& part = piece.part;
    if (part.matrix.file < 0) return;
    const auto row_bytes =
        static_cast<std::size_t>(part.matrix.view[1]) * size_of(part.matrix.view.dtype());
    const std::size_t bytes = static_cast<std::size_t>(part.rows.count) * row_bytes;
    std::byte* begin = page_of(mapped);
    // Advice only.
    (void)::madvise(begin, static_cast<std::size_t>(mapped - begin) + bytes, MADV_WILLNEED);
  }

  WeightUpload& upload_;
  cudaStream_t stream_ = nullptr;
  std::array<Buffer, 2> buffers_;
  void* numbers_ = nullptr;     ///< device memory for a piece
  std::vector<CodedRow> rows_;  ///< of a panel
};

int WeightUpload::threads_for(int ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / std::max(ranks, 1), 2, 12);
}

WeightUpload::WeightUpload(const Options& options) : options_(options) {}

WeightUpload::~WeightUpload() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    pieces_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WeightUpload::add(const StoredMatrix& matrix, const Tensor& device, const Tensor& scales) {
  std::int64_t row = 0;
  for (const StoredPart& part : matrix.parts) {
    if (part.rows.count > 0 && part.cols.count > 0) add_rows(part, row, device, scales);
    row += part.rows.count;
  }
  start_threads();
}

void WeightUpload::add_codes(const StoredMatrix& matrix, WeightEncoding encoding,
                             const std::optional<CodedPanels>& panels, const Tensor& device,
                             const Tensor& row_scales) {
  const auto codes = std::make_shared<const Codes>(
      Codes{matrix, coded_form(matrix, encoding).form.value(), panels});
  // A unit is a panel or a row.
  const std::int64_t units = panels ? panels->panels() : matrix.rows;
  const std::int64_t unit_rows = panels ? panel_rows : 1;
  const std::int64_t code_bytes = panels ? panels->panel_bytes() : matrix.columns;
  const std::int64_t unit_bytes =
      code_bytes + (row_scales.empty() ? 0 : unit_rows * std::int64_t{sizeof(float)});
  const std::int64_t at_once = std::max<std::int64_t>(1, options_.piece_bytes / unit_bytes);
  auto* const to = static_cast<std::byte*>(device.data());
  for (std::int64_t first = 0; first < units; first += at_once) {
    const std::int64_t count = std::min(at_once, units - first);
    const std::int64_t row = first * unit_rows;
    push({.part = {.matrix = {}, .rows = {row, count * unit_rows}},
          .device = to + first * code_bytes,
          .scales = row_scales.empty() ? nullptr : row_scales.as<float>() + row,
          .bytes = static_cast<std::size_t>(count * unit_bytes),
          .codes = codes});
  }
  start_threads();
}

void WeightUpload::start_threads() {
  if (!threads_.empty()) return;
  began_ = std::chrono::steady_clock::now();
  running_ = options_.threads;
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] {
      Result<void> done = Reader(*this).run();
      if (!done.ok()) fail_with(std::move(done).error());
      const std::lock_guard lock(mutex_);
      --running_;
      changed_.notify_all();
    });
  }
}

void WeightUpload::add_rows(const StoredPart& part, std::int64_t row, const Tensor& device,
                            const Tensor& scales) {
  const auto size = static_cast<std::int64_t>(size_of(options_.dtype));
  const auto device_size = static_cast<std::int64_t>(size_of(device.dtype()));
  auto* to = static_cast<std::byte*>(device.data()) + row * device[1] * device_size;
  const std::int64_t row_bytes = part.cols.count * size;
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, options_.piece_bytes / row_bytes);
  const std::int64_t columns_at_once = std::min(part.cols.count, options_.piece_bytes / size);
  for (std::int64_t first = 0; first < part.rows.count; first += rows_at_once) {
    StoredPart piece = part;
    piece.rows = {part.rows.begin + first, std::min(rows_at_once, part.rows.count - first)};
    for (std::int64_t column = 0; column < part.cols.count; column += columns_at_once) {
      piece.cols = {part.cols.begin + column, std::min(columns_at_once, part.cols.count - column)};
      push({.part = piece,
            .device = to + (first * part.cols.count + column) * device_size,
            .scales = scales.empty() ? nullptr : scales.as<float>() + row + first,
            .bytes = static_cast<std::size_t>(piece.rows.count * piece.cols.count * size)});
    }
  }
}

void WeightUpload::push(Piece piece) {
  total_bytes_ += piece.bytes;
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
  }
  changed_.notify_one();
}

std::optional<WeightUpload::Piece> WeightUpload::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || error_ || !pieces_.empty(); });
  if (error_ || pieces_.empty()) return std::nullopt;
  Piece piece = pieces_.front();
  pieces_.pop_front();
  return piece;
}

void WeightUpload::fail_with(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_.notify_all();
}

LoadedWeights WeightUpload::state() const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
  return {.bytes = bytes_,
          .total_bytes = total_bytes_,
          .direct_bytes = direct_bytes_,
          .seconds = threads_.empty() ? 0.0 : seconds.count()};
}

Result<LoadedWeights> WeightUpload::finish(
    const std::function<void(const LoadedWeights&)>& progress) {
  std::unique_lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  while (!changed_.wait_for(lock, progress_interval, [this] { return running_ == 0; })) {
    if (!progress) continue;
    lock.unlock();
    progress(state());
    lock.lock();
  }
  if (error_) return *error_;
  bytes_ = total_bytes_;
  return state();
}

}  // namespace troupe
