#include "models/ops/cuda/attention/cuda_attention_ops.hpp"

#include <cstdint>
#include <memory>
#include <utility>

#include "models/ops/attention_limits.hpp"

namespace troupe {

Result<std::unique_ptr<CudaAttentionOps>> CudaAttentionOps::create(CudaContext& context) {
  std::unique_ptr<CudaAttentionOps> attention(new CudaAttentionOps(context));
  if (context.deterministic()) {
    TROUPE_TRY(attention->invariant_attention_,
               InvariantAttention::create(context.always_cascades()));
  } else if (context.dtype() == DType::bf16) {
    TROUPE_TRY(attention->flash_attention_, FlashAttention::create());
    TROUPE_TRY(attention->latent_attention_, FlashInferMla::create());
    TROUPE_TRY(attention->decode_attention_, DecodeAttention::create(context.always_cascades()));
  }
  return attention;
}

bool CudaAttentionOps::supports_graph(const AttentionShape& shape, DType stored) const {
  if (shape.index.top_k > 0) return false;  // its launches depend on the contexts' lengths
  if (deterministic_) return InvariantAttention::supports(shape, stored, dtype_);
  if (is_code(stored)) return CodedAttention::supports(shape, stored, dtype_);
  if (flash_attention_ == nullptr) return false;
  return DecodeAttention::supports(shape, stored, dtype_) ||
         FlashInferMla::supports(shape, stored, dtype_) ||
         (FlashAttention::supports(shape, stored, dtype_) && FlashAttention::supports_graph(shape));
}

Result<std::pair<DeviceTensor, DeviceTensor>> CudaAttentionOps::allocate_kv(
    std::int64_t blocks, std::int32_t block_size, const AttentionShape& shape, DType dtype) {
  TROUPE_CHECK(check_gpu_attention(shape, dtype));
  const bool has_codes = is_code(dtype);
  codes_ = has_codes ? std::optional(dtype) : std::nullopt;
  if (has_codes && decode_attention_ != nullptr && coded_attention_ == nullptr) {
    TROUPE_TRY(coded_attention_, CodedAttention::create(*decode_attention_, *flash_attention_));
  }
  const auto pages_of = [&](DType stored) {
    return Shape{blocks, shape.kv_heads, block_size, shape.row_layout(stored).row_elements};
  };
  if (has_codes) {
    // A KV head's keys in a block, then its values: CodedPages.
    const DType of_keys = shape.key_dtype(dtype), of_values = shape.value_dtype(dtype);
    const std::int64_t heads = blocks * shape.kv_heads;
    const std::int64_t key_bytes = shape.row_layout(of_keys).page_elements(block_size),
                       value_bytes = shape.row_layout(of_values).page_elements(block_size);
    TROUPE_TRY(DeviceTensor memory, context_.allocate(DType::u8, {heads, key_bytes + value_bytes}));
    auto* const begin = memory->as<std::uint8_t>();
    const auto owner = std::make_shared<const DeviceTensor>(std::move(memory));
    const auto part = [&](std::uint8_t* from, DType stored) {
      return DeviceTensor(Tensor(from, stored, pages_of(stored)), [owner](void*) {});
    };
    return std::pair(part(begin, of_keys), part(begin + key_bytes, of_values));
  }
  const auto zeros = [&](DType stored) -> Result<DeviceTensor> {
    const Shape pages = pages_of(stored);
    const std::int64_t behind = FlashAttention::elements_behind(shape);
    TROUPE_TRY(DeviceTensor memory, context_.allocate_unset(stored, pages, behind));
    const std::size_t bytes = memory->bytes() + static_cast<std::size_t>(behind) * size_of(stored);
    check(cudaMemsetAsync(memory->data(), 0, bytes, stream()), "cudaMemset");
    return memory;
  };
  TROUPE_TRY(DeviceTensor keys, zeros(shape.key_dtype(dtype)));
  if (shape.latent != 0) return std::pair(std::move(keys), DeviceTensor());
  TROUPE_TRY(DeviceTensor values, zeros(shape.value_dtype(dtype)));
  return std::pair(std::move(keys), std::move(values));
}

}  // namespace troupe
