#pragma once

/// @file
/// Groups of actors that compute together over host memory, and the actor runtime: `#include
/// <troupe/parallel.hpp>` and link to `troupe::parallel`, which has `troupe::runtime` as this has
/// <troupe/troupe.hpp>. The headers named here are its public ones.

#include "parallel/collectives/collectives.hpp"
#include "parallel/device/dtype.hpp"
#include "parallel/device/tensor.hpp"
#include "parallel/group/actor_group.hpp"
#include "parallel/group/communicator_spec.hpp"
#include "parallel/group/group_member.hpp"
#include "parallel/group/group_seat.hpp"
#include "runtime/troupe.hpp"
