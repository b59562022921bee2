// A library that is preloaded into a job's processes, so that a GPU can be made to fail from
// outside. On SIGUSR2 the process runs a kernel on its device that writes where nothing is: CUDA
// then refuses all further work of the process, as after a wrong access in any kernel. On
// SIGRTMIN+1 it runs one that never ends and takes the whole device: no other kernel of the process
// begins, so that its rank does not come to the next collective.

#include <array>
#include <csignal>
#include <cstdio>
#include <thread>

#include <cuda.h>
#include <dlfcn.h>

namespace {

constexpr const char* kernels = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry writes_nowhere() {
  .reg .u64 %place;
  .reg .u32 %value;
  mov.u64 %place, 64;
  mov.u32 %value, 1;
  st.global.u32 [%place], %value;
  ret;
}
.visible .entry never_ends() {
  .reg .u64 %time;
again:
  mov.u64 %time, %globaltimer;
  bra again;
}
)";

/// Two blocks of so many threads fill a multiprocessor.
constexpr unsigned block_threads = 1024;
/// More than any device takes at once.
constexpr unsigned many_blocks = 4096;

/// The driver's functions; the library is loaded only when it is used, as in the process.
template <class Function>
Function* driver_function(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(driver, name));
}
#define CALL(function, ...) driver_function<decltype(function)>(#function)(__VA_ARGS__)

/// Finds the device whose context this process uses; -1 if there is none.
int used_device() {
  int devices = 0;
  if (CALL(cuDeviceGetCount, &devices) != CUDA_SUCCESS) return -1;
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int is_active = 0;
    CALL(cuDevicePrimaryCtxGetState, device, &flags, &is_active);
    if (is_active != 0) return device;
  }
  return -1;
}

/// Launches one of the kernels.
void launch(const char* name, unsigned blocks, unsigned threads) {
  const int device = used_device();
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  if (device < 0 || CALL(cuDevicePrimaryCtxRetain, &context, device) != CUDA_SUCCESS ||
      CALL(cuCtxSetCurrent, context) != CUDA_SUCCESS ||
      CALL(cuModuleLoadData, &module, kernels) != CUDA_SUCCESS ||
      CALL(cuModuleGetFunction, &kernel, module, name) != CUDA_SUCCESS ||
      CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    std::fprintf(stderr, "break_device: no kernel for device %d\n", device);
    return;
  }
  const CUresult launched =
      CALL(cuLaunchKernel, kernel, blocks, 1, 1, threads, 1, 1, 0, stream, nullptr, nullptr);
  std::fprintf(stderr, "break_device: the launch of %s on device %d gave %d\n", name, device,
               launched);
}

__attribute__((constructor)) void await_signal() {
  static sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  sigaddset(&signals, SIGRTMIN + 1);
  // The thread takes no other signal: those are for the program. Threads that begin later have
  // these two blocked as well.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread([] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) {
      if (signal == SIGUSR2) launch("writes_nowhere", 1, 1);
      if (signal == SIGRTMIN + 1) launch("never_ends", many_blocks, block_threads);
    }
  }).detach();
  sigaddset(&before, SIGUSR2);
  sigaddset(&before, SIGRTMIN + 1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
