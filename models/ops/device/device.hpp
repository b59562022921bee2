#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/device_group.hpp"

namespace troupe {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct OpsOptions {
  DeviceKind kind = DeviceKind::cpu;
  DType dtype = DType::f32;  ///< the model's, f32 or bf16
  int device = 0;            ///< if there are several GPUs
  int threads = 1;           ///< for a CPU's operations
  bool cores_are_shared = false;
  WeightEncoding encoding = WeightEncoding::plain;  ///< on GPUs, see CudaOpsOptions
  bool widens_codes = false;                        ///< likewise
  bool deterministic = false;  ///< on GPUs, see CudaOpsOptions; CPUs' operations always are
};

/// Makes Ops on a device of this machine. Errors: those of make_cpu_ops or make_cuda_ops;
/// unsupported if the CUDA library is missing.
Result<std::unique_ptr<Ops>> make_ops(const OpsOptions& options);

/// The collectives of a rank for tensors in its device's memory, enqueued among its operations.
/// `host` are those for tensors in host memory, by which the ranks come together: they outlive what
/// is made, as `ops` does; all ranks call this, then barrier(). Only of Ops whose device has memory
/// of its own (MemoryOps::available). Errors: those of Collectives; unsupported,
/// resource_exhausted.
Result<std::unique_ptr<Collectives>> join_ranks(Ops& ops, Collectives& host,
                                                const DeviceGroup& group);

/// Returns the number of GPUs that this process can use. CUDA code is in a shared library beside
/// the program, libtroupe_cuda.so, which the first call loads, so that machines without GPUs need
/// no CUDA. Errors: unsupported, with what is missing.
Result<int> count_gpus();

/// Returns the total memory of the smallest of these GPUs, including memory in use. Errors: those
/// of count_gpus; not_found if there is no GPU or CUDA does not report it.
Result<std::uint64_t> gpu_memory_bytes();

/// Returns the folder in which the kernel describes a GPU, e.g. /sys/bus/pci/devices/0000:19:00.0.
/// Errors: those of count_gpus; not_found if CUDA does not tell the GPU's address.
Result<std::filesystem::path> gpu_folder(int device);

/// Returns the GPUs that the driver lists, without loading anything: an instant first check, where
/// count_gpus takes part of a second. None if it lists none, or if CUDA_VISIBLE_DEVICES may hide
/// some.
std::optional<int> listed_gpus();

/// True if the CUDA library is beside the program.
bool gpu_part_is_here();

}  // namespace troupe
