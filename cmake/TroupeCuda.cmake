# CUDA's compiler and libraries. Only the folders named cuda and nccl use them.
set(CMAKE_CUDA_ARCHITECTURES OFF)  # set in TROUPE_CUDA_CODE, with the letter suffix that Hopper needs
if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin REQUIRED)
endif()
if(TROUPE_CUDA_CODE MATCHES "compute_[5-8][0-9]")
  message(FATAL_ERROR "TROUPE_CUDA_CODE=${TROUPE_CUDA_CODE}: the sampler wants clusters of blocks, which "
    "GPUs have from compute_90 on")
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12.8 REQUIRED)
# CMake 3.25 does not know nvcc's C++20 support, nor fmt 9 its constexpr functions.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-gencode=${TROUPE_CUDA_CODE};-DFMT_USE_CONSTEXPR=1;-Xcompiler=-Wall>")

# Headers of FlashInfer's kernels, which scripts/fetch-flashinfer unpacks.
set(TROUPE_FLASHINFER "${PROJECT_SOURCE_DIR}/build/third_party/flashinfer" CACHE PATH
  "Folder that scripts/fetch-flashinfer made")
if(NOT EXISTS "${TROUPE_FLASHINFER}/cutlass/cutlass/cutlass.h")
  message(FATAL_ERROR "no FlashInfer in ${TROUPE_FLASHINFER}: run scripts/fetch-flashinfer")
endif()
