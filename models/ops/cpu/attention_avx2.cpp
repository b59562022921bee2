#define TROUPE_ISA avx2
#include "models/ops/cpu/attention_kernels.hpp"
#include "models/ops/cpu/attention_weights.hpp"
#include "models/ops/cpu/index_scores.hpp"
