#define TROUPE_ISA avx2
#include "models/ops/cpu/row_kernels.hpp"
