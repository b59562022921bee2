#include "models/ops/cuda/gemm/tuning_memory.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace {

constexpr unsigned threads = 256, blocks = 1024;

__global__ void write_noise(cuda::bf16* memory, std::size_t count) {
  const std::size_t all = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += all) {
    // The finalizer of MurmurHash3.
    std::uint32_t bits = static_cast<std::uint32_t>(i) * 0x9e3779b9U;
    bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
    bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
    memory[i] =
        __float2bfloat16_rn(static_cast<float>((bits ^ (bits >> 16)) >> 8) * 0x1p-23F - 1.0F);
  }
}

__global__ void read_units(const uint4* memory, std::size_t count, unsigned never) {
  const std::size_t all = std::size_t{gridDim.x} * blockDim.x;
  unsigned seen = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += all) {
    const uint4 unit = memory[i];
    seen |= unit.x | unit.y | unit.z | unit.w;
  }
  // So that the compiler does not remove the reads.
  if (seen == never) asm volatile("" ::"r"(seen) : "memory");
}

}  // namespace

void fill_with_noise(void* memory, std::size_t bytes, cudaStream_t stream) {
  write_noise<<<blocks, threads, 0, stream>>>(static_cast<cuda::bf16*>(memory),
                                              bytes / sizeof(cuda::bf16));
}

void read_through(const void* memory, std::size_t bytes, cudaStream_t stream) {
  read_units<<<blocks, threads, 0, stream>>>(static_cast<const uint4*>(memory),
                                             bytes / sizeof(uint4), ~0U);
}

}  // namespace troupe
