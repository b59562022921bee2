#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

Result<std::unique_ptr<Ops>> make_golden_ops(DType precision, int /*rank*/, bool /*deterministic*/,
                                             WeightEncoding /*encoding*/) {
  return make_cpu_ops({.threads = 1, .dtype = precision});
}

int max_golden_ranks() { return 64; }

Result<std::unique_ptr<Collectives>> join_golden_ranks(Ops& /*ops*/, Collectives& /*host*/) {
  return std::unique_ptr<Collectives>();
}

}  // namespace troupe::golden
