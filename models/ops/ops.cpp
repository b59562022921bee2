#include "models/ops/ops.hpp"

#include <new>
#include <vector>

#include "models/ops/stored_matrix.hpp"

namespace troupe {
namespace {

/// Calls `read` with the matrices in host memory.
template <class Read>
auto with_host_memory(std::span<const StoredMatrix> matrices, const Read& read)
    -> decltype(read(std::span<const Tensor>())) {
  std::vector<HostTensor> owners;
  std::vector<Tensor> views;
  try {
    for (const StoredMatrix& matrix : matrices) {
      owners.push_back(in_host_memory(matrix));
      views.push_back(owners.back());
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted, "no memory to read {} matrices [{}, {}]",
                matrices.size(), matrices.front().rows, matrices.front().columns);
  }
  return read(views);
}

}  // namespace

Result<std::unique_ptr<Linear>> Ops::load(const StoredMatrix& weight, int segments) {
  return with_host_memory(
      {&weight, 1}, [&](std::span<const Tensor> host) { return prepare(host.front(), segments); });
}

Result<std::unique_ptr<GroupedLinear>> Ops::load_grouped(std::span<const StoredMatrix> weights,
                                                         int segments) {
  return with_host_memory(
      weights, [&](std::span<const Tensor> host) { return prepare_grouped(host, segments); });
}

Result<DeviceTensor> Ops::load_table(const StoredMatrix& weight) {
  return with_host_memory(
      {&weight, 1}, [&](std::span<const Tensor> host) { return prepare_table(host.front()); });
}

}  // namespace troupe
