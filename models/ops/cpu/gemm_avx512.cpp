#define TROUPE_ISA avx512
#include "models/ops/cpu/gemm_kernels.hpp"
