#define TROUPE_ISA avx2
#include "models/ops/cpu/code_gemm_kernels.hpp"
