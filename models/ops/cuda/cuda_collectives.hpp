#pragma once

#include <memory>
#include <string>

#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// The collectives between GPUs of a rank whose `ops` is one of make_cuda_ops: NcclCollectives on
/// its stream. join_ranks of models/ops/device says more.
Result<std::unique_ptr<Collectives>> join_cuda_ranks(Ops& ops, Collectives& host,
                                                     const std::string& name);

}  // namespace troupe
