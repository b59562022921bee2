#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/weight_format.hpp"

namespace troupe {

/// Enqueues the panels (coded_panels.hpp) of rows of 8-bit codes, e4m3 or int8: codes [rows, k]
/// row-major; rows is a multiple of 8, k of 16. `panels`, aligned to 16 bytes, has
/// CodedPanels::panel_bytes() for each eight rows. Kernels that take panels have no NaN: the scale
/// of a row with such a code of E4M3 becomes NaN.
cudaError_t launch_arrange_panels(CodeKind kind, const std::uint8_t* codes, std::int64_t rows,
                                  std::int64_t k, std::uint8_t* panels, float* row_scales,
                                  cudaStream_t stream);

/// The same where the codes are: `codes` has memory for the panels. Rows are moved out of the way
/// to `room`, of at least eight rows, as many at once as it holds.
cudaError_t launch_arrange_in_place(CodeKind kind, std::uint8_t* codes, std::int64_t rows,
                                    std::int64_t k, float* row_scales, void* room,
                                    std::int64_t room_bytes, cudaStream_t stream);

}  // namespace troupe
