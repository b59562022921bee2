#include "parallel/collectives/peer/peer_expert_exchange.hpp"

#include <utility>

namespace troupe {
namespace {

Result<void> enqueued(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  return fail(ErrorCode::internal, "{} of experts' rows: {}", what, cudaGetErrorString(error));
}

}  // namespace

Result<std::unique_ptr<PeerExpertExchange>> PeerExpertExchange::open(
    int device, cudaStream_t stream, const volatile std::uint32_t* end, Collectives& host,
    const DeviceExpertExchangeLayout& layout, Begin begin) {
  const int ranks = host.size();
  if (ranks < 2 || ranks > max_peer_ranks || !takes_peer_rows_exchange(layout)) {
    return std::unique_ptr<PeerExpertExchange>();
  }
  const HostTensor refusals(DType::f32, {1});
  refusals->as<float>()[0] = layout.takes_codes ? 0.0F : 1.0F;
  TROUPE_CHECK(host.all_reduce_tree(refusals));
  const PeerRowsRegion region = peer_rows_region(layout, ranks);
  TROUPE_TRY(auto memory, PeerMemory::open(device, host, region.bytes, region.bytes));
  if (memory == nullptr) return std::unique_ptr<PeerExpertExchange>();
  std::unique_ptr<PeerExpertExchange> made(
      new PeerExpertExchange(layout, stream, std::move(begin)));
  made->takes_codes_ = refusals->as<float>()[0] == 0.0F && layout.width % code_row_unit == 0;
  made->rows_ = {{memory->regions(), host.rank(), ranks, end}, layout};
  std::byte* const own = memory->regions().of[host.rank()];
  made->memory_ = std::move(memory);
  const std::int64_t capacity = ranks * layout.max_rows;
  made->received_ = Tensor(own + region.rows, DType::bf16, {capacity, layout.width});
  made->received_codes_ = Tensor(own + region.rows, DType::u8, {capacity, layout.width});
  made->received_scales_ = Tensor(own + region.scales, DType::f32, {capacity});
  made->received_ids_ = Tensor(own + region.ids, DType::i32, {capacity, layout.top_k});
  made->received_counts_ = Tensor(filled_rows(own), DType::i32, {ranks});
  return made;
}

Result<void> PeerExpertExchange::dispatch(const Tensor& x, const Tensor& scales, const Tensor& ids,
                                          const Tensor& weights) {
  if (x[0] > layout().max_rows) {
    return fail(ErrorCode::invalid_argument, "an exchange of {} rows; this one takes {}", x[0],
                layout().max_rows);
  }
  if (!scales.empty() && layout().width % code_row_unit != 0) {
    return fail(ErrorCode::invalid_argument,
                "an exchange of codes in rows of {}, not a multiple of {}", layout().width,
                code_row_unit);
  }
  TROUPE_CHECK(begin_(x.bytes()));
  return enqueued(launch_dispatch(rows_, x, scales, ids, weights, stream_), "the dispatch");
}

Result<void> PeerExpertExchange::combine(const Tensor& results, const Tensor& out) {
  TROUPE_CHECK(begin_(out.bytes()));
  return enqueued(launch_combine(rows_, results, out, stream_), "the return");
}

}  // namespace troupe
