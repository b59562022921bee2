#define TROUPE_ISA avx2
#include "models/ops/cpu/attention_kernels.hpp"
