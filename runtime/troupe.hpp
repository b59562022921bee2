#pragma once

/// @file
/// The actor runtime: `#include <troupe/troupe.hpp>` and link to `troupe::runtime`. The headers
/// named here are its public ones; what they include beside these are details, which may change.
/// <troupe/parallel.hpp> has groups of actors that compute together.

// Actors, and the cluster that they live in.
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/actor_type.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/async/await.hpp"
#include "runtime/actor/async/concurrency_groups.hpp"
#include "runtime/actor/async/stream.hpp"
#include "runtime/actor/async/stream_reader.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/actor/ssh_cluster.hpp"

// Calls: what travels, and the answers.
#include "runtime/call/actor_address.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/future.hpp"
#include "runtime/call/get_by.hpp"
#include "runtime/call/wait.hpp"
#include "runtime/task/task_options.hpp"

// Objects: values that processes share.
#include "runtime/object/object_ref.hpp"
#include "runtime/object/object_view.hpp"

// Metrics of users.
#include "runtime/metrics/metrics_registry.hpp"

// Nodes: what they have, and how agents get there.
#include "runtime/node/agent.hpp"
#include "runtime/node/join_token.hpp"
#include "runtime/node/node_starter.hpp"
#include "runtime/node/placement_group.hpp"
#include "runtime/node/resources.hpp"
#include "runtime/node/slurm_node_starter.hpp"
#include "runtime/node/ssh_node_starter.hpp"

// Errors, the log, waits.
#include "runtime/base/blocking.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"
