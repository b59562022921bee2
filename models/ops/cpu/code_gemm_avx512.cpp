#define TROUPE_ISA avx512
#include "models/ops/cpu/code_gemm_kernels.hpp"
