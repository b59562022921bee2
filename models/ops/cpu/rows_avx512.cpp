#define TROUPE_ISA avx512
#include "models/ops/cpu/row_kernels.hpp"
