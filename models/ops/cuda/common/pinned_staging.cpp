#include "models/ops/cuda/common/pinned_staging.hpp"

#include <utility>

#include "models/ops/cuda/common/small_copy.hpp"
#include "models/ops/cuda/cuda_error.hpp"

namespace troupe {

Result<std::unique_ptr<PinnedStaging>> PinnedStaging::create(std::size_t bytes) {
  std::unique_ptr<PinnedStaging> staging(new PinnedStaging());
  TROUPE_TRY(staging->device_, DeviceBuffer::allocate(bytes, "memory for a plan"));
  for (Copy& copy : staging->copies_) {
    TROUPE_CHECK(cuda_done(cudaMallocHost(reinterpret_cast<void**>(&copy.host), bytes),
                           "page-locked memory for a plan"));
    TROUPE_CHECK(cuda_done(cudaEventCreateWithFlags(&copy.uploaded, cudaEventDisableTiming),
                           "an event of a plan"));
  }
  return Result<std::unique_ptr<PinnedStaging>>(std::move(staging));
}

PinnedStaging::~PinnedStaging() {
  for (const Copy& copy : copies_) {
    if (copy.uploaded != nullptr) cudaEventDestroy(copy.uploaded);
    if (copy.host != nullptr) cudaFreeHost(copy.host);
  }
}

Result<std::byte*> PinnedStaging::next() {
  const Copy& copy = copies_[++turn_ % copies_.size()];
  TROUPE_CHECK(cuda_done(cudaEventSynchronize(copy.uploaded), "the upload of a plan"));
  return copy.host;
}

Result<void> PinnedStaging::upload(std::size_t bytes, cudaStream_t stream) {
  const Copy& copy = copies_[turn_ % copies_.size()];
  TROUPE_CHECK(
      cuda_done(copy_small(device_.data(), copy.host, bytes, cudaMemcpyHostToDevice, stream),
                "the upload of a plan"));
  return cuda_done(cudaEventRecord(copy.uploaded, stream), "an event of a plan");
}

}  // namespace troupe
