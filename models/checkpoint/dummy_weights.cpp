#include "models/checkpoint/dummy_weights.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/hash.hpp"

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
// A page more than a power of two: otherwise all rows of power-of-two length would begin with the
// same values.
constexpr std::size_t pattern_bytes = (std::size_t{16} << 20) + page_bytes;
constexpr std::size_t max_tensor_bytes = std::size_t{16} << 30;
// A tensor may begin anywhere in the first repetition.
constexpr std::size_t repetitions = max_tensor_bytes / pattern_bytes + 2;
constexpr std::size_t mapped_bytes = repetitions * pattern_bytes;
constexpr std::int64_t max_norm_elements = 1 << 20;
constexpr float largest_value = 0.04F;

/// The outputs of SplitMix64 (Steele, Lea, Flood 2014), four values of 16 bits each, in [-1, 1).
class Noise {
 public:
  float next() {
    if (left_ == 0) {
      state_ += 0x9e3779b97f4a7c15ULL;
      bits_ = state_;
      bits_ = (bits_ ^ (bits_ >> 30)) * 0xbf58476d1ce4e5b9ULL;
      bits_ = (bits_ ^ (bits_ >> 27)) * 0x94d049bb133111ebULL;
      bits_ ^= bits_ >> 31;
      left_ = 4;
    }
    const auto value = static_cast<std::int16_t>(bits_ & 0xFFFF);
    bits_ >>= 16;
    --left_;
    return static_cast<float>(value) / 32768.0F;
  }

 private:
  std::uint64_t state_ = 0;
  std::uint64_t bits_ = 0;
  int left_ = 0;
};

/// Writes values that bf16 holds exactly.
void fill_pattern(std::byte* memory, DType dtype) {
  Noise noise;
  const std::size_t count = pattern_bytes / size_of(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const BFloat16 value = to_bfloat16(noise.next() * largest_value);
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(memory)[i] = to_float(value);
    } else {
      reinterpret_cast<BFloat16*>(memory)[i] = value;
    }
  }
}

Result<std::byte*> map_pattern(int file) {
  void* region =
      ::mmap(nullptr, mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return fail_errno(errno, "cannot reserve addresses for dummy weights");
  auto* memory = static_cast<std::byte*>(region);
  for (std::size_t i = 0; i < repetitions; ++i) {
    // The first mapping is for writing, the others are for reading.
    const int protection = i == 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    void* place = memory + i * pattern_bytes;
    if (::mmap(place, pattern_bytes, protection, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
      const int error = errno;
      ::munmap(region, mapped_bytes);
      return fail_errno(error, "cannot map dummy weights");
    }
  }
  return memory;
}

}  // namespace

Result<DummyWeights> DummyWeights::create(DType dtype) {
  DummyWeights weights;
  weights.dtype_ = dtype == DType::f32 ? DType::f32 : DType::bf16;
  const int file = ::memfd_create("dummy weights", MFD_CLOEXEC);
  if (file < 0) return fail_errno(errno, "cannot make memory for dummy weights");
  if (::ftruncate(file, pattern_bytes) != 0) {
    const int error = errno;
    ::close(file);
    return fail_errno(error, "cannot make memory for dummy weights");
  }
  auto mapped = map_pattern(file);
  ::close(file);
  TROUPE_TRY(weights.noise_, std::move(mapped));
  fill_pattern(weights.noise_, weights.dtype_);

  weights.ones_ = HostTensor(weights.dtype_, {max_norm_elements});
  if (weights.dtype_ == DType::f32) {
    std::ranges::fill(weights.ones_->span<float>(), 1.0F);
  } else {
    std::ranges::fill(weights.ones_->span<BFloat16>(), to_bfloat16(1.0F));
  }
  return weights;
}

DummyWeights::DummyWeights(DummyWeights&& other) noexcept
    : dtype_(other.dtype_),
      noise_(std::exchange(other.noise_, nullptr)),
      ones_(std::move(other.ones_)) {}

DummyWeights& DummyWeights::operator=(DummyWeights&& other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(noise_, other.noise_);
  std::swap(ones_, other.ones_);
  return *this;
}

DummyWeights::~DummyWeights() {
  if (noise_ != nullptr) ::munmap(noise_, mapped_bytes);
}

Result<Tensor> DummyWeights::tensor(std::string_view name, const Shape& shape) const {
  const bool norm = name.find("norm") != std::string_view::npos;
  const auto elements = static_cast<std::size_t>(shape.elements());
  const std::size_t most =
      norm ? static_cast<std::size_t>(max_norm_elements) : max_tensor_bytes / size_of(dtype_);
  if (elements > most) {
    return fail(ErrorCode::unsupported, "dummy weights: tensor {} {} has more than {} elements",
                name, shape.to_string(), most);
  }
  if (norm) return Tensor(ones_->data(), dtype_, shape);
  const std::size_t begin = hash_128(name).first % (pattern_bytes / size_of(dtype_));
  return Tensor(noise_ + begin * size_of(dtype_), dtype_, shape);
}

}  // namespace troupe
