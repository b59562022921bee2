#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// The experts of a few tokens (MoeOps::expert_mlp), bf16, or with weights of E4M3 codes, each row
/// with a scale, which become halves (f16) in registers, exactly, as x does. Accumulated in fp32:
/// bound by the weights' bytes, each of which is read once. All pointers are device memory, tensors
/// aligned to 16 bytes.
struct SmallBatchMoe {
  const void* gate_up = nullptr;          ///< [experts, 2 inner, hidden] bf16 or codes
  const void* down = nullptr;             ///< [experts, hidden, inner] alike
  const void* x = nullptr;                ///< [tokens, hidden] bf16
  void* activated = nullptr;              ///< [tokens * top_k, inner] bf16: scratch
  void* out = nullptr;                    ///< [tokens, hidden]
  DType out_dtype = DType::f32;           ///< bf16 or f32
  const std::int32_t* ids = nullptr;      ///< [tokens, top_k] choices
  const float* weights = nullptr;         ///< [tokens, top_k]
  const std::int32_t* offsets = nullptr;  ///< [experts + 1]
  const std::int32_t* source = nullptr;   ///< [tokens * top_k]
  std::int64_t first_expert = 0;          ///< of the local experts
  std::int64_t tokens = 0, top_k = 1, experts = 0, hidden = 0, inner = 0;
  /// An MLP that all tokens take besides, in `shared_inner / inner` parts; 0: none.
  std::int64_t shared_inner = 0;
  const void* shared_gate_up = nullptr;  ///< [2 shared_inner, hidden] bf16, or codes as the others
  const void* shared_down = nullptr;     ///< [hidden, shared_inner] alike
  void* shared_activated = nullptr;      ///< [tokens, shared_inner] bf16: scratch
  // Of codes; null: bf16.
  const float* gate_up_scales = nullptr;         ///< [experts, 2 inner]
  const float* down_scales = nullptr;            ///< [experts, hidden]
  const float* shared_gate_up_scales = nullptr;  ///< [2 shared_inner]
  const float* shared_down_scales = nullptr;     ///< [hidden]

  bool is_coded() const { return gate_up_scales != nullptr; }

  std::int64_t assignments() const { return tokens * (top_k + shared_inner / inner); }
};

/// True if launch_small_batch_moe supports it: at most 8 tokens with 64 choices and parts of the
/// shared MLP, hidden a multiple of 16, inner of 8 (codes: of 16) and shared_inner of inner, and
/// hopper_kernels_run().
bool small_batch_moe_fits(const SmallBatchMoe& call);

/// Enqueues two kernels: gates and ups of the chosen experts, then their down matrices and the
/// weighted sum in the order of choice, to which the shared parts are added. A token's row is a
/// function of its own input and choices, in bits: chains over hidden, whose silu(gate) * up is
/// rounded to bf16, then over inner for each expert, none rounded before the sum. Of codes each
/// chain is multiplied by its weights' scale; x and silu(gate) * up are rounded to f16 after they
/// were divided by 64: those beyond 4 million become infinite.
cudaError_t launch_small_batch_moe(const SmallBatchMoe& call, cudaStream_t stream);

}  // namespace troupe
