#include "models/ops/device/device.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/device/cuda_library.hpp"

namespace troupe {
namespace {

std::string library_path() {
  std::error_code problem;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", problem);
  return (program.parent_path() / "libtroupe_cuda.so").string();
}

Result<const CudaLibrary*> open_cuda_library() {
  const std::string path = library_path();
  if (!gpu_part_is_here()) {
    return fail(ErrorCode::unsupported,
                "this is a build without the part for GPUs: there is no {} (scripts/build cuda "
                "makes it)",
                path);
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::unsupported, "the part for GPUs cannot be loaded: {}", ::dlerror());
  }
  const auto function =
      reinterpret_cast<CudaLibraryFunction>(::dlsym(library, cuda_library_symbol));
  if (function == nullptr || function()->interface != cuda_interface) {
    return fail(ErrorCode::unsupported, "{} is not of the same build as this program", path);
  }
  return function();
}

Result<const CudaLibrary*> cuda_library() {
  static const Result<const CudaLibrary*> library = open_cuda_library();
  return library;
}

}  // namespace

bool gpu_part_is_here() {
  std::error_code problem;
  return std::filesystem::exists(library_path(), problem);
}

std::optional<int> listed_gpus() {
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return std::nullopt;
  std::error_code problem;
  int listed = 0;
  for (std::filesystem::directory_iterator entry("/proc/driver/nvidia/gpus", problem), end;
       !problem && entry != end; entry.increment(problem)) {
    ++listed;
  }
  return listed > 0 ? std::optional(listed) : std::nullopt;
}

Result<int> count_gpus() {
  TROUPE_TRY(const CudaLibrary* library, cuda_library());
  return library->count_devices();
}

Result<std::uint64_t> gpu_memory_bytes() {
  TROUPE_TRY(const CudaLibrary* library, cuda_library());
  const int gpus = library->count_devices();
  std::uint64_t smallest = 0;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const std::uint64_t memory = library->device_memory(gpu);
    if (memory == 0)
      return fail(ErrorCode::not_found, "CUDA does not tell the memory of GPU {}", gpu);
    smallest = smallest == 0 ? memory : std::min(smallest, memory);
  }
  if (smallest == 0) return fail(ErrorCode::not_found, "there is no GPU that this build runs on");
  return smallest;
}

Result<std::filesystem::path> gpu_folder(int device) {
  TROUPE_TRY(const CudaLibrary* library, cuda_library());
  std::string address = library->pci_address(device);
  if (address.empty())
    return fail(ErrorCode::not_found, "CUDA does not tell the PCI address of GPU {}", device);
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::filesystem::path("/sys/bus/pci/devices") / address;
}

Result<std::unique_ptr<Ops>> make_ops(const OpsOptions& options) {
  if (options.kind == DeviceKind::cuda) {
    TROUPE_TRY(const CudaLibrary* library, cuda_library());
    return library->make_ops({.device = options.device,
                              .dtype = options.dtype,
                              .deterministic = options.deterministic,
                              .encoding = options.encoding,
                              .widens_codes = options.widens_codes});
  }
  return make_cpu_ops({.threads = options.threads,
                       .dtype = options.dtype,
                       .cores_are_shared = options.cores_are_shared});
}

Result<std::unique_ptr<Collectives>> join_ranks(Ops& ops, Collectives& host,
                                                const DeviceGroup& group) {
  TROUPE_TRY(const CudaLibrary* library, cuda_library());
  return library->join_ranks(ops, host, group);
}

}  // namespace troupe
