#include "models/ops/cuda/plan_memory.hpp"

#include <utility>

namespace troupe {
namespace {

Result<void> check(cudaError_t error, const char* operation) {
  if (error == cudaSuccess) return {};
  return fail(
      error == cudaErrorMemoryAllocation ? ErrorCode::resource_exhausted : ErrorCode::internal,
      "{} of a plan failed: {}", operation, cudaGetErrorString(error));
}

}  // namespace

Result<std::unique_ptr<PlanMemory>> PlanMemory::create(std::size_t bytes) {
  std::unique_ptr<PlanMemory> memory(new PlanMemory(bytes));
  TROUPE_CHECK(check(cudaMalloc(reinterpret_cast<void**>(&memory->device_), bytes), "memory"));
  for (Copy& copy : memory->copies_) {
    TROUPE_CHECK(
        check(cudaMallocHost(reinterpret_cast<void**>(&copy.host), bytes), "page-locked memory"));
    TROUPE_CHECK(check(cudaEventCreateWithFlags(&copy.uploaded, cudaEventDisableTiming), "event"));
  }
  return Result<std::unique_ptr<PlanMemory>>(std::move(memory));
}

PlanMemory::~PlanMemory() {
  for (const Copy& copy : copies_) {
    if (copy.uploaded != nullptr) cudaEventDestroy(copy.uploaded);
    if (copy.host != nullptr) cudaFreeHost(copy.host);
  }
  if (device_ != nullptr) cudaFree(device_);
}

Result<std::byte*> PlanMemory::next() {
  const Copy& copy = copies_[++turn_ % copies_.size()];
  TROUPE_CHECK(check(cudaEventSynchronize(copy.uploaded), "upload"));
  return copy.host;
}

Result<void> PlanMemory::upload(std::size_t bytes, cudaStream_t stream) {
  const Copy& copy = copies_[turn_ % copies_.size()];
  TROUPE_CHECK(
      check(cudaMemcpyAsync(device_, copy.host, bytes, cudaMemcpyHostToDevice, stream), "upload"));
  return check(cudaEventRecord(copy.uploaded, stream), "event");
}

}  // namespace troupe
