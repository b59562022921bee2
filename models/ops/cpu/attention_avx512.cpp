#define TROUPE_ISA avx512
#include "models/ops/cpu/attention_kernels.hpp"
