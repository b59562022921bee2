#pragma once

/// @file
/// The actor runtime: `#include <troupe/troupe.hpp>` and link to `troupe::runtime`. The headers
/// named here are its public ones; what they include beside these are details, which may change.
/// <troupe/parallel.hpp>, for programs that link to `troupe::parallel`, has all of this and groups
/// of actors that compute together: one of the two is the one header to include.

/// @mainpage
/// Where to find what; `docs/library.md` has a first program, and `runtime/examples` more to copy.
///
/// | to | look at |
/// |---|---|
/// | begin: first in main, then a cluster | troupe::init, troupe::Cluster, troupe::ClusterOptions |
/// | use hosts | troupe::ssh_cluster, troupe::SlurmNodeStarter, troupe::run_joining_agent |
/// | write an actor: a class with a list of methods | troupe::Methods, troupe::Arguments |
/// | start it, or find one by its name | troupe::Cluster::spawn, troupe::SpawnOptions |
/// | call it | troupe::ActorHandle, troupe::CallOptions, troupe::Future |
/// | know its place, devices and deadline from within | troupe::ActorContext |
/// | hear of its end, restart it | troupe::ActorDown, troupe::SpawnOptions::max_restarts |
/// | pass values to callers and back | troupe::Encoder: what travels |
/// | run a function somewhere | troupe::Cluster::submit, troupe::TaskOptions |
/// | share large values | troupe::ObjectAccess, troupe::ObjectRef, troupe::ObjectView |
/// | wait without a thread | troupe::Async, troupe::sleep_for, troupe::with_timeout |
/// | answer many times | troupe::Stream, troupe::StreamReader |
/// | run calls at once | troupe::SpawnOptions::max_concurrency, troupe::ConcurrencyGroups |
/// | do it later or again | troupe::ActorContext::run_after, troupe::ActorContext::run_every |
/// | reserve CPUs, GPUs and memory | troupe::Resources, troupe::PlacementGroup |
/// | compute together: collectives | troupe::ActorGroup, troupe::GroupMember, troupe::Collectives |
/// | count and measure | troupe::MetricsRegistry, troupe::Counter, troupe::Cluster::metrics_text |
/// | handle errors, log | troupe::Result, troupe::ErrorCode, troupe::log |

// Actors, and the cluster that they live in.
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/actor_type.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/async/actor_timers.hpp"
#include "runtime/actor/async/async.hpp"
#include "runtime/actor/async/await.hpp"
#include "runtime/actor/async/concurrency_groups.hpp"
#include "runtime/actor/async/stream.hpp"
#include "runtime/actor/async/stream_reader.hpp"
#include "runtime/actor/async/with_timeout.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/actor/ssh_cluster.hpp"

// Calls: what travels, and the answers.
#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_terms.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/future.hpp"
#include "runtime/call/get_by.hpp"
#include "runtime/call/wait.hpp"
#include "runtime/task/task_options.hpp"

// Objects: values that processes share.
#include "runtime/object/object_access.hpp"
#include "runtime/object/object_ref.hpp"
#include "runtime/object/object_view.hpp"

// Metrics of users.
#include "runtime/metrics/metric_values.hpp"
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
