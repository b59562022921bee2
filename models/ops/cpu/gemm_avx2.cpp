#define TROUPE_ISA avx2
#include "models/ops/cpu/gemm_kernels.hpp"
