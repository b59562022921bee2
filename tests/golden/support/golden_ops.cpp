#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

Result<std::unique_ptr<Ops>> make_golden_ops(DType precision) {
  return make_cpu_ops({.threads = 1, .dtype = precision});
}

bool golden_ops_are_on_host() { return true; }

}  // namespace troupe::golden
