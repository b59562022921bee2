#include "models/checkpoint/dummy_weights.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
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
constexpr float largest_of_attention_outputs = largest_value / 128;
/// 2^-7: random codes of MXFP4 have a standard deviation of 2.9.
constexpr int mxfp4_scale = 127 - 7;

/// The outputs of SplitMix64 (Steele, Lea, Flood 2014), four values of 16 bits each, in [-1, 1).
class Noise {
 public:
  float next() { return static_cast<float>(next_bits()) / 32768.0F; }
  std::int16_t next_bits() {
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
    return value;
  }

 private:
  std::uint64_t state_ = 0;
  std::uint64_t bits_ = 0;
  int left_ = 0;
};

/// Writes values of magnitudes up to `largest` that bf16 holds exactly.
void fill_pattern(std::byte* memory, DType dtype, float largest) {
  Noise noise;
  const std::size_t count = pattern_bytes / size_of(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const BFloat16 value = to_bfloat16(noise.next() * largest);
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

Result<DummyWeights::Pattern> DummyWeights::Pattern::create() {
  const int file = ::memfd_create("dummy weights", MFD_CLOEXEC);
  if (file < 0) return fail_errno(errno, "cannot make memory for dummy weights");
  if (::ftruncate(file, pattern_bytes) != 0) {
    const int error = errno;
    ::close(file);
    return fail_errno(error, "cannot make memory for dummy weights");
  }
  auto mapped = map_pattern(file);
  ::close(file);
  Pattern pattern;
  TROUPE_TRY(pattern.memory_, std::move(mapped));
  return pattern;
}

DummyWeights::Pattern::~Pattern() {
  if (memory_ != nullptr) ::munmap(memory_, mapped_bytes);
}

Result<Tensor> DummyWeights::Pattern::view(std::string_view name, DType dtype,
                                           const Shape& shape) const {
  const std::size_t most = max_tensor_bytes / size_of(dtype);
  if (static_cast<std::size_t>(shape.elements()) > most) {
    return fail(ErrorCode::unsupported, "dummy weights: tensor {} {} has more than {} elements",
                name, shape.to_string(), most);
  }
  const std::size_t begin = hash_128(name).first % (pattern_bytes / size_of(dtype));
  return Tensor(memory_ + begin * size_of(dtype), dtype, shape);
}

Result<DummyWeights> DummyWeights::create(DType dtype, bool has_mxfp4) {
  DummyWeights weights;
  weights.dtype_ = dtype == DType::f32 ? DType::f32 : DType::bf16;
  TROUPE_TRY(weights.noise_, Pattern::create());
  fill_pattern(weights.noise_.data(), weights.dtype_, largest_value);
  TROUPE_TRY(weights.attention_outputs_, Pattern::create());
  fill_pattern(weights.attention_outputs_.data(), weights.dtype_, largest_of_attention_outputs);
  if (has_mxfp4) {
    TROUPE_TRY(weights.codes_, Pattern::create());
    TROUPE_TRY(weights.scales_, Pattern::create());
    Noise noise;
    for (std::size_t i = 0; i < pattern_bytes; i += sizeof(std::int16_t)) {
      const std::int16_t bits = noise.next_bits();
      std::memcpy(weights.codes_.data() + i, &bits, sizeof bits);
    }
    std::memset(weights.scales_.data(), mxfp4_scale, pattern_bytes);
  }

  weights.ones_ = HostTensor(weights.dtype_, {max_norm_elements});
  if (weights.dtype_ == DType::f32) {
    std::ranges::fill(weights.ones_->span<float>(), 1.0F);
  } else {
    std::ranges::fill(weights.ones_->span<BFloat16>(), to_bfloat16(1.0F));
  }
  return weights;
}

Result<Tensor> DummyWeights::tensor(std::string_view name, const Shape& shape) const {
  if (name.find("norm") == std::string_view::npos) {
    const bool is_attention_output = name.find("o_proj") != std::string_view::npos;
    return (is_attention_output ? attention_outputs_ : noise_).view(name, dtype_, shape);
  }
  if (shape.elements() > max_norm_elements) {
    return fail(ErrorCode::unsupported, "dummy weights: tensor {} {} has more than {} elements",
                name, shape.to_string(), max_norm_elements);
  }
  return Tensor(ones_->data(), dtype_, shape);
}

Result<Tensor> DummyWeights::mxfp4_codes(std::string_view name, const Shape& shape) const {
  return codes_.view(name, DType::u8, shape);
}

Result<Tensor> DummyWeights::mxfp4_scales(std::string_view name, const Shape& shape) const {
  return scales_.view(name, DType::u8, shape);
}

}  // namespace troupe
