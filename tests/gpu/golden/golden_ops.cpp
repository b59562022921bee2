#include "models/ops/cuda/cuda_ops.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

Result<std::unique_ptr<Ops>> make_golden_ops(DType precision) {
  return make_cuda_ops({.device = 0, .dtype = precision});
}

bool golden_ops_are_on_host() { return false; }

}  // namespace troupe::golden
