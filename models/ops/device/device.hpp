#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"

namespace troupe {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct OpsOptions {
  DeviceKind kind = DeviceKind::cpu;
  DType dtype = DType::f32;  ///< the model's, f32 or bf16
  int device = 0;            ///< of several GPUs
  int threads = 1;           ///< of a CPU's operations
  bool cores_are_shared = false;
  bool deterministic = false;  ///< of GPUs, as CudaOpsOptions; CPUs' operations are anyway
};

/// Ops on a device of this machine. Errors: those of make_cpu_ops or make_cuda_ops; unsupported if
/// the part for GPUs is not there.
Result<std::unique_ptr<Ops>> make_ops(const OpsOptions& options);

/// The collectives of a rank for tensors in its device's memory, enqueued among its operations.
/// `host` are those for tensors in host memory, by which the ranks come together: they outlive what
/// is made, as `ops` does; all ranks call this, then barrier(). `name` is the group's, for
/// messages. Only of Ops whose device has memory of its own (Ops::memory). Errors: those of
/// Collectives; unsupported, resource_exhausted.
Result<std::unique_ptr<Collectives>> join_ranks(Ops& ops, Collectives& host,
                                                const std::string& name);

/// How many GPUs this process can use. The part for GPUs is a shared library beside the program,
/// libtroupe_cuda.so, which is loaded by the first call, so that machines without GPUs need nothing
/// of CUDA. Errors: unsupported, with what is missing.
Result<int> count_gpus();

/// The memory of the smallest of these GPUs, whoever has taken of it. Errors: those of count_gpus;
/// not_found if there is no GPU or CUDA does not say.
Result<std::uint64_t> gpu_memory_bytes();

/// GPUs that the driver lists, without loading anything: a first look, which takes no time, where
/// count_gpus takes a part of a second. None where it lists none, or where CUDA_VISIBLE_DEVICES may
/// hide some.
std::optional<int> listed_gpus();

/// Whether the part for GPUs lies beside the program.
bool gpu_part_is_here();

}  // namespace troupe
