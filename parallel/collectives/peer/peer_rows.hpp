#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "parallel/collectives/device_expert_exchange.hpp"
#include "parallel/collectives/peer/peer_sums.hpp"

namespace troupe {

/// One rank's side of a DeviceExpertExchange. Its region has counters, then places for received and
/// for returned rows, as PeerRowsRegion says. Zeroed at first.
struct PeerRows {
  PeerCall call;
  DeviceExpertExchangeLayout layout;
};

inline constexpr std::size_t peer_rows_control_bytes = 4u << 10;

/// Offsets in a region, each a multiple of 256 bytes.
struct PeerRowsRegion {
  std::size_t ids = 0;       ///< [ranks * max_rows, top_k] i32
  std::size_t weights = 0;   ///< the same, f32
  std::size_t scales = 0;    ///< [ranks * max_rows] f32: of rows in codes
  std::size_t rows = 0;      ///< [ranks * max_rows, width] bf16, or codes
  std::size_t returned = 0;  ///< bf16, for the rank's own rows: rank r's result for row i
  std::size_t bytes = 0;
};
PeerRowsRegion peer_rows_region(const DeviceExpertExchangeLayout& layout, int ranks);

/// Number of rows received from each rank, in the region's counters. [max_peer_ranks] i32.
std::int32_t* filled_rows(std::byte* region);

/// The columns of rows in codes are a multiple of this, a word of 16 bytes.
inline constexpr std::int64_t code_row_unit = 16;

/// True if these kernels take such rows: whole words of 16 bytes, and few enough choices.
bool takes_peer_rows_exchange(const DeviceExpertExchangeLayout& layout);

/// DeviceExpertExchange::dispatch; ends when the rows of all ranks have arrived.
cudaError_t launch_dispatch(const PeerRows& exchange, const Tensor& x, const Tensor& scales,
                            const Tensor& ids, const Tensor& weights, cudaStream_t stream);
/// DeviceExpertExchange::combine.
cudaError_t launch_combine(const PeerRows& exchange, const Tensor& results, const Tensor& out,
                           cudaStream_t stream);

}  // namespace troupe
