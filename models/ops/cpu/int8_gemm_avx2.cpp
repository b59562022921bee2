#define TROUPE_ISA avx2
#include "models/ops/cpu/int8_gemm_kernels.hpp"
