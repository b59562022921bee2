#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/ops/cuda/cuda_ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/device_group.hpp"

namespace troupe {

/// Raised with every change of CudaLibrary, Ops or the types they use.
inline constexpr int cuda_interface = 12;

/// The functions that libtroupe_cuda.so offers to a program with the same `interface`.
struct CudaLibrary {
  int interface = cuda_interface;
  int (*count_devices)() = nullptr;                      ///< 0 if CUDA cannot be started
  std::uint64_t (*device_memory)(int device) = nullptr;  ///< in total; 0 if CUDA does not report it
  std::string (*pci_address)(int device) = nullptr;      ///< "0000:19:00.0"; empty if not known
  Result<std::unique_ptr<Ops>> (*make_ops)(const CudaOpsOptions& options) = nullptr;
  /// `ops` is from make_ops.
  Result<std::unique_ptr<Collectives>> (*join_ranks)(Ops& ops, Collectives& host,
                                                     const DeviceGroup& group) = nullptr;
};

/// The library's one symbol, a function of this type.
inline constexpr const char* cuda_library_symbol = "troupe_cuda_library";
using CudaLibraryFunction = const CudaLibrary* (*)();

}  // namespace troupe
