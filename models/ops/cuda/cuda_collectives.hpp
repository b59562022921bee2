#pragma once

#include <memory>

#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/device_group.hpp"

namespace troupe {

/// Makes the collectives between GPUs of a rank whose `ops` is from make_cuda_ops: NcclCollectives
/// on its stream. See join_ranks in models/ops/device.
Result<std::unique_ptr<Collectives>> join_cuda_ranks(Ops& ops, Collectives& host,
                                                     const DeviceGroup& group);

}  // namespace troupe
