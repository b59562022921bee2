#define TROUPE_ISA avx512vnni
#include "models/ops/cpu/int8_gemm_kernels.hpp"
