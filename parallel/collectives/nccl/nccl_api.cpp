#include "parallel/collectives/nccl/nccl_api.hpp"

#include <dlfcn.h>

namespace troupe {
namespace {

constexpr const char* library_name = "libnccl.so.2";

template <class Function>
bool find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

Result<NcclApi> load() {
  void* const library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::unsupported,
                "several GPUs need NCCL 2.19 or later, whose {} cannot be loaded (is its folder in "
                "LD_LIBRARY_PATH?): {}",
                library_name, ::dlerror());
  }
  NcclApi api;
  const bool complete =
      find(library, "ncclGetVersion", api.get_version) &&
      find(library, "ncclGetUniqueId", api.get_unique_id) &&
      find(library, "ncclCommInitRankConfig", api.init_rank) &&
      find(library, "ncclCommAbort", api.abort) &&
      find(library, "ncclGetErrorString", api.error_string) &&
      find(library, "ncclGetLastError", api.last_error) &&
      find(library, "ncclGroupStart", api.group_start) &&
      find(library, "ncclGroupEnd", api.group_end) && find(library, "ncclSend", api.send) &&
      find(library, "ncclRecv", api.receive) && find(library, "ncclAllGather", api.all_gather) &&
      find(library, "ncclBroadcast", api.broadcast) &&
      find(library, "ncclAllReduce", api.all_reduce);
  if (!complete)
    return fail(ErrorCode::unsupported, "{} is too old: {}", library_name, ::dlerror());
  return api;
}

}  // namespace

Result<const NcclApi*> nccl_api() {
  static const Result<NcclApi> api = load();
  if (!api.ok()) return api.error();
  return &api.value();
}

}  // namespace troupe
