#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Weights for a model that has no files: every name has values, in any shape, which depend on the
/// name and the position alone, so they are the same on every rank and machine and in either dtype.
/// Weights with "norm" in their name are 1, all others uniform noise with a standard deviation of
/// 0.023, a typical initialisation; those with "o_proj" 1/128 of it. Attention adds a mean of other
/// tokens to each: if it added more, tokens would become alike within a few layers, and a router
/// would choose the same few experts for all.
///
/// All tensors are views of patterns of 16 MiB that are mapped repeatedly: tensors of gigabytes
/// take no memory beyond them. Values therefore repeat after some million elements. Movable; const
/// functions may be called from any thread.
class DummyWeights {
 public:
  /// f32, or bf16 for any other `dtype`; with `has_mxfp4` also codes. Errors: io if the memory
  /// cannot be mapped.
  static Result<DummyWeights> create(DType dtype, bool has_mxfp4 = false);

  /// A read-only view that lives as long as this object. Errors: unsupported for a tensor of more
  /// than 16 GiB.
  Result<Tensor> tensor(std::string_view name, const Shape& shape) const;

  /// Codes of MXFP4, u8 of two each, and their scales, u8 of powers of two, as which noise has
  /// about the same deviation. Errors: as of tensor. create() must have been told.
  Result<Tensor> mxfp4_codes(std::string_view name, const Shape& shape) const;
  Result<Tensor> mxfp4_scales(std::string_view name, const Shape& shape) const;

 private:
  /// A pattern that is mapped repeatedly.
  class Pattern {
   public:
    static Result<Pattern> create();
    Pattern() = default;
    Pattern(Pattern&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
    Pattern& operator=(Pattern&& other) noexcept {
      std::swap(memory_, other.memory_);
      return *this;
    }
    ~Pattern();

    /// Its first repetition, which may be written.
    std::byte* data() const { return memory_; }
    /// A view that begins somewhere in the first repetition, depending on the name.
    Result<Tensor> view(std::string_view name, DType dtype, const Shape& shape) const;

   private:
    std::byte* memory_ = nullptr;
  };

  DummyWeights() = default;

  DType dtype_ = DType::bf16;
  Pattern noise_, attention_outputs_, codes_, scales_;
  HostTensor ones_;
};

}  // namespace troupe
