#include "parallel/collectives/nccl/nccl_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/collectives/columns_to_rows.hpp"
#include "parallel/collectives/peer/peer_expert_exchange.hpp"
#include "parallel/collectives/peer/peer_sums.hpp"

namespace troupe {
namespace {

constexpr std::size_t scratch_bytes = 64u << 20;
/// Bytes per rank of the first NCCL group calls, which connect all ranks before graphs are
/// captured.
constexpr std::int64_t greeting_bytes = 64;

std::byte* at(const Tensor& tensor, std::size_t offset) {
  return static_cast<std::byte*>(tensor.data()) + offset;
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Result<std::unique_ptr<NcclCollectives>> NcclCollectives::join(NcclSeat seat, Collectives& host) {
  if (host.size() > max_summed_ranks) {
    return fail(ErrorCode::invalid_argument, "{} GPUs in group {}; at most {}", host.size(),
                seat.group.name, max_summed_ranks);
  }
  std::unique_ptr<NcclCollectives> made(new NcclCollectives(std::move(seat), host));
  made->set_timeout(host.timeout());
  TROUPE_CHECK(made->check(cudaSetDevice(made->seat_.device), "cudaSetDevice"));
  TROUPE_TRY(const NcclApi* api, nccl_api());
  ncclUniqueId id{};
  if (host.rank() == 0 && api->get_unique_id(&id) != ncclSuccess) {
    return made->failed(
        fail(ErrorCode::internal, "NCCL cannot begin: {}", api->last_error(nullptr)));
  }
  TROUPE_CHECK(host.broadcast(Tensor(&id, DType::u8, {std::int64_t{sizeof id}}), 0));
  made->nccl_ =
      std::make_unique<NcclCommunicator>(*api, id, host.rank(), host.size(), made->seat_.device);
  TROUPE_CHECK(made->allocate());
  if (made->seat_.group.on_one_node && host.size() <= max_peer_ranks) {
    TROUPE_TRY(made->peers_, PeerMemory::open(made->seat_.device, host));
  }
  made->seat_.watch->add(*made);
  return made;
}

Result<void> NcclCollectives::allocate() {
  TROUPE_CHECK(check(cudaMalloc(&scratch_, scratch_bytes), "cudaMalloc of what is to be summed"));
  void* word = nullptr;
  TROUPE_CHECK(
      check(cudaHostAlloc(&word, sizeof *end_word_, cudaHostAllocMapped), "cudaHostAlloc"));
  end_word_ = static_cast<std::uint32_t*>(word);
  *end_word_ = 0;
  return {};
}

NcclCollectives::~NcclCollectives() {
  seat_.watch->remove(*this);
  stop();
  nccl_.reset();
  cudaSetDevice(seat_.device);
  peers_.reset();
  cudaFree(scratch_);
  cudaFreeHost(end_word_);
}

void NcclCollectives::abort() {
  host_.abort();
  stop();
}

void NcclCollectives::stop() {
  if (ended_.exchange(true)) return;
  if (end_word_ != nullptr) *static_cast<volatile std::uint32_t*>(end_word_) = 1;
  {
    const std::lock_guard lock(side_mutex_);
    if (side_marks_) side_marks_->release();
  }
  if (nccl_) nccl_->end();  // waits for work on the device
}

std::string NcclCollectives::describe() const {
  return fmt::format("rank {} of {} ({}) on device {}, last a {}", rank(), size(), seat_.group.name,
                     seat_.device, troupe::describe(last_));
}

Error NcclCollectives::failed(const Error& why) const {
  return {why.code, fmt::format("collectives: {}: {}", describe(), why.message)};
}

Result<void> NcclCollectives::check(cudaError_t error, std::string_view what) const {
  if (error == cudaSuccess) return {};
  return failed(fail(ErrorCode::internal, "{}: {}", what, cudaGetErrorString(error)));
}

Result<void> NcclCollectives::begin(Result<void> checked, const CollectiveCall& call) {
  if (given_up()) return fail(ErrorCode::cancelled, "collectives: {}: aborted", describe());
  last_ = call;
  if (!checked.ok()) {
    abort();
    return checked;
  }
  return check(cudaSetDevice(seat_.device), "cudaSetDevice");
}

Result<void> NcclCollectives::run(const NcclCommunicator::Body& body) {
  const Result<void> ran = nccl_->run(body, timeout());
  if (ran.ok()) return {};
  abort();
  return failed(ran.error());
}

Result<void> NcclCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  TROUPE_CHECK(begin(check_device_all_reduce(partial, sum),
                     {CollectiveCall::Kind::all_reduce, 0, partial.bytes()}));
  if (partial.empty()) return {};
  if (peers_ == nullptr || !takes_peer_sum(partial, sum)) return sum_everywhere(partial, sum);
  return check(launch_peer_sum(peer_call(), partial, sum, seat_.stream), "the sum's launch");
}

bool NcclCollectives::can_all_reduce_rms_norm(DType dtype, std::int64_t width) const {
  return peers_ != nullptr && takes_peer_norm(dtype, width);
}

bool NcclCollectives::prefers_sharded_residual(std::size_t bytes) const {
  return bytes > (size() > 2 ? max_whole_bytes : max_whole_bytes_of_two);
}

Result<void> NcclCollectives::all_reduce_rms_norm(const AllReduceRmsNorm& sum) {
  auto checked = check_all_reduce_rms_norm(sum, rank(), size());
  if (checked.ok() && !can_all_reduce_rms_norm(sum.partial.dtype(), sum.partial[1])) {
    checked = fail(ErrorCode::unsupported, "sum and norm: rows {} of {}",
                   sum.partial.shape().to_string(), to_string(sum.partial.dtype()));
  }
  TROUPE_CHECK(
      begin(std::move(checked), {CollectiveCall::Kind::all_reduce, 0, sum.partial.bytes()}));
  return check(launch_peer_norm(peer_call(), sum, seat_.stream),
               "the launch of a sum and its norm");
}

Result<void> NcclCollectives::columns_to_rows(const Tensor& part, const Tensor& whole,
                                              const Tensor& scratch) {
  if (peers_ != nullptr && takes_peer_rows(part, whole)) {
    TROUPE_CHECK(begin(check_columns_to_rows(*this, part, whole),
                       {CollectiveCall::Kind::all_to_all, 0, row_bytes(part)}));
    if (part.empty()) return {};
    return check(launch_peer_rows(peer_call(), part, whole, seat_.stream),
                 "the launch of columns to rows");
  }
  TROUPE_TRY(const Tensor parts, columns_to_parts(*this, part, whole, scratch));
  if (whole.empty()) return {};
  const auto rows = static_cast<std::size_t>(whole[0]);
  const std::size_t row = row_bytes(whole), width = row_bytes(parts);
  for (std::size_t done = 0, from = 0; done < row; done += width, from += rows * width) {
    TROUPE_CHECK(check(
        cudaMemcpy2DAsync(at(whole, done), row, at(parts, from), width, std::min(width, row - done),
                          rows, cudaMemcpyDeviceToDevice, seat_.stream),
        "the copy of columns"));
  }
  return {};
}

Result<void> NcclCollectives::library_all_reduce(const Tensor& partial, const Tensor& sum) {
  TROUPE_CHECK(begin(check_device_all_reduce(partial, sum),
                     {CollectiveCall::Kind::all_reduce, 0, partial.bytes()}));
  const auto type = partial.dtype() == DType::bf16 ? ncclBfloat16 : ncclFloat32;
  const auto count = static_cast<std::size_t>(partial.elements());
  return run([&](const NcclApi& api, ncclComm_t comm) {
    return api.all_reduce(partial.data(), sum.data(), count, type, ncclSum, comm, seat_.stream);
  });
}

Result<void> NcclCollectives::sum_everywhere(const Tensor& partial, const Tensor& sum) {
  // Each rank sums a share, then all gather the sums. With two ranks that costs no more than
  // sending each other everything.
  std::vector<std::int64_t> counts(index(size()));
  const std::int64_t each = (partial.elements() / size() + 127) / 128 * 128;
  std::int64_t left = partial.elements();
  for (std::int64_t& count : counts) {
    count = std::min(left, each);
    left -= count;
  }
  counts.back() += left;
  const std::int64_t begin =
      std::accumulate(counts.begin(), counts.begin() + rank(), std::int64_t{0});
  const Tensor own(at(sum, static_cast<std::size_t>(begin) * size_of(sum.dtype())), sum.dtype(),
                   {counts[index(rank())]});
  TROUPE_CHECK(sum_shares(partial, own, counts));
  return all_gather(own, sum.reshaped({sum.elements()}), counts);
}

Result<void> NcclCollectives::sum_shares(const Tensor& partial, const Tensor& sum,
                                         std::span<const std::int64_t> counts) {
  const std::size_t width = size_of(partial.dtype());
  const std::int64_t most = std::ranges::max(counts);
  const std::size_t summed_first = size() > max_peer_ranks ? peer_groups(index(size())) : 0;
  const auto piece = static_cast<std::int64_t>(
                         scratch_bytes / (width * index(size()) + sizeof(float) * summed_first)) /
                     128 * 128;
  auto* const room = reinterpret_cast<float*>(
      static_cast<std::byte*>(scratch_) + index(size()) * static_cast<std::size_t>(piece) * width);
  std::vector<std::int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::int64_t{0});
  // Returns rank r's elements of the piece at `done`.
  const auto in_piece = [&](int r, std::int64_t done) {
    return std::clamp<std::int64_t>(counts[index(r)] - done, 0, piece);
  };
  for (std::int64_t done = 0; done < most; done += piece) {
    const std::int64_t own = in_piece(rank(), done);
    const auto from_rank = [&](int r) {
      return static_cast<std::byte*>(scratch_) + index(r) * static_cast<std::size_t>(piece) * width;
    };
    TROUPE_CHECK(run([&](const NcclApi& api, ncclComm_t comm) {
      ncclResult_t status = api.group_start();
      for (int r = 0; r < size() && status == ncclSuccess; ++r) {
        if (r == rank()) continue;
        const auto theirs = static_cast<std::size_t>(in_piece(r, done)) * width;
        const auto offset = static_cast<std::size_t>(begins[index(r)] + done) * width;
        if (theirs > 0) {
          status = api.send(at(partial, offset), theirs, ncclInt8, r, comm, seat_.stream);
        }
        if (own > 0 && status == ncclSuccess) {
          status = api.receive(from_rank(r), static_cast<std::size_t>(own) * width, ncclInt8, r,
                               comm, seat_.stream);
        }
      }
      const ncclResult_t ended = api.group_end();
      return status == ncclSuccess ? ended : status;
    }));
    if (own == 0) continue;
    std::vector<const void*> terms(index(size()));
    for (int r = 0; r < size(); ++r) terms[index(r)] = from_rank(r);
    terms[index(rank())] =
        at(partial, static_cast<std::size_t>(begins[index(rank())] + done) * width);
    const Tensor to(at(sum, static_cast<std::size_t>(done) * size_of(sum.dtype())), sum.dtype(),
                    {own});
    TROUPE_CHECK(check(launch_sum_of_terms(terms, partial.dtype(), to, room, seat_.stream),
                       "the sum's launch"));
  }
  return {};
}

Result<void> NcclCollectives::reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                                  std::span<const std::int64_t> rows_per_rank) {
  TROUPE_CHECK(begin(check_device_reduce_scatter(partial, sum, rows_per_rank, rank(), size()),
                     {CollectiveCall::Kind::reduce_scatter, 0, partial.bytes()}));
  std::vector<std::int64_t> counts(rows_per_rank.begin(), rows_per_rank.end());
  const std::int64_t width = row_elements(partial);
  for (std::int64_t& count : counts) count *= width;
  return sum_shares(partial, sum, counts);
}

Result<void> NcclCollectives::all_gather(const Tensor& part, const Tensor& all,
                                         std::span<const std::int64_t> rows_per_rank) {
  TROUPE_CHECK(begin(check_all_gather(part, all, rows_per_rank, rank(), size()),
                     {CollectiveCall::Kind::all_gather, 0, all.bytes()}));
  const std::vector<std::size_t> bytes = scaled(rows_per_rank, row_bytes(all));
  if (all.empty()) return {};
  if (peers_ != nullptr && takes_peer_gather(part, all, bytes)) {
    return check(launch_peer_gather(peer_call(), part, all, bytes, seat_.stream),
                 "the launch of a small gather");
  }
  return gather_by_nccl(part, all, bytes);
}

Result<void> NcclCollectives::gather_by_nccl(const Tensor& part, const Tensor& all,
                                             std::span<const std::size_t> bytes) {
  const bool even = std::ranges::all_of(bytes, [&](std::size_t each) { return each == bytes[0]; });
  if (even) {
    return run([&](const NcclApi& api, ncclComm_t comm) {
      return api.all_gather(part.data(), all.data(), bytes[0], ncclInt8, comm, seat_.stream);
    });
  }
  return run([&](const NcclApi& api, ncclComm_t comm) {
    ncclResult_t status = api.group_start();
    std::size_t offset = 0;
    for (int root = 0; root < size() && status == ncclSuccess; ++root) {
      const std::size_t theirs = bytes[index(root)];
      void* const place = at(all, offset);
      offset += theirs;
      if (theirs == 0) continue;
      const void* const from = root == rank() ? part.data() : place;
      status = api.broadcast(from, place, theirs, ncclInt8, root, comm, seat_.stream);
    }
    const ncclResult_t ended = api.group_end();
    return status == ncclSuccess ? ended : status;
  });
}

Result<void> NcclCollectives::broadcast(const Tensor& tensor, int root) {
  TROUPE_CHECK(
      begin(check_broadcast(root, size()),
            {CollectiveCall::Kind::broadcast, static_cast<std::uint32_t>(root), tensor.bytes()}));
  if (tensor.empty()) return {};
  return run([&](const NcclApi& api, ncclComm_t comm) {
    return api.broadcast(tensor.data(), tensor.data(), tensor.bytes(), ncclInt8, root, comm,
                         seat_.stream);
  });
}

Result<void> NcclCollectives::all_to_all(const Tensor& send,
                                         std::span<const std::int64_t> send_rows,
                                         const Tensor& receive,
                                         std::span<const std::int64_t> receive_rows) {
  auto checked = check_all_to_all(send, send_rows, receive, receive_rows, size());
  if (checked.ok() && send_rows[index(rank())] != receive_rows[index(rank())]) {
    checked =
        fail(ErrorCode::invalid_argument, "all-to-all: rank {} sends {} rows to itself, expects {}",
             rank(), send_rows[index(rank())], receive_rows[index(rank())]);
  }
  TROUPE_CHECK(begin(std::move(checked), {CollectiveCall::Kind::all_to_all, 0, row_bytes(send)}));
  const std::vector<std::size_t> out = scaled(send_rows, row_bytes(send));
  const std::vector<std::size_t> in = scaled(receive_rows, row_bytes(receive));
  std::size_t from = 0, to = 0;
  std::size_t own_from = 0, own_to = 0;
  TROUPE_CHECK(run([&](const NcclApi& api, ncclComm_t comm) {
    ncclResult_t status = api.group_start();
    for (int r = 0; r < size() && status == ncclSuccess; ++r) {
      if (r == rank()) {
        own_from = from;
        own_to = to;
      } else {
        if (out[index(r)] > 0) {
          status = api.send(at(send, from), out[index(r)], ncclInt8, r, comm, seat_.stream);
        }
        if (in[index(r)] > 0 && status == ncclSuccess) {
          status = api.receive(at(receive, to), in[index(r)], ncclInt8, r, comm, seat_.stream);
        }
      }
      from += out[index(r)];
      to += in[index(r)];
    }
    const ncclResult_t ended = api.group_end();
    return status == ncclSuccess ? ended : status;
  }));
  if (out[index(rank())] == 0) return {};
  return check(cudaMemcpyAsync(at(receive, own_to), at(send, own_from), out[index(rank())],
                               cudaMemcpyDeviceToDevice, seat_.stream),
               "the copy of own rows");
}

Result<std::unique_ptr<DeviceExpertExchange>> NcclCollectives::open_expert_exchange(
    const DeviceExpertExchangeLayout& layout) {
  if (peers_ == nullptr) return std::unique_ptr<DeviceExpertExchange>();
  TROUPE_TRY(auto opened,
             PeerExpertExchange::open(
                 seat_.device, seat_.stream, end_word_, host_, layout, [this](std::size_t bytes) {
                   return begin({}, {CollectiveCall::Kind::all_to_all, 0, bytes});
                 }));
  return std::unique_ptr<DeviceExpertExchange>(std::move(opened));
}

Result<std::unique_ptr<OverlappedAllReduce>> NcclCollectives::open_overlapped_all_reduce(
    DType dtype, std::int64_t max_rows, std::int64_t width) {
  if (dtype != DType::bf16 || peers_ == nullptr) return std::unique_ptr<OverlappedAllReduce>();
  TROUPE_TRY(auto opened,
             PeerOverlappedAllReduce::open(
                 seat_.device, seat_.stream, host_, max_rows, width, [this](std::size_t bytes) {
                   return begin({}, {CollectiveCall::Kind::all_reduce, 0, bytes});
                 }));
  if (opened == nullptr) return std::unique_ptr<OverlappedAllReduce>();
  const std::lock_guard lock(side_mutex_);
  side_marks_ = opened->marks();
  return std::unique_ptr<OverlappedAllReduce>(std::move(opened));
}

Result<void> NcclCollectives::send(const Tensor& tensor, int to) {
  TROUPE_CHECK(begin(check_peer("send", to, rank(), size()),
                     {CollectiveCall::Kind::message, 0, tensor.bytes()}));
  if (tensor.empty()) return {};
  return run([&](const NcclApi& api, ncclComm_t comm) {
    return api.send(tensor.data(), tensor.bytes(), ncclInt8, to, comm, seat_.stream);
  });
}

Result<void> NcclCollectives::receive(const Tensor& tensor, int from) {
  TROUPE_CHECK(begin(check_peer("receive", from, rank(), size()),
                     {CollectiveCall::Kind::message, 0, tensor.bytes()}));
  if (tensor.empty()) return {};
  return run([&](const NcclApi& api, ncclComm_t comm) {
    return api.receive(tensor.data(), tensor.bytes(), ncclInt8, from, comm, seat_.stream);
  });
}

Result<void> NcclCollectives::barrier() {
  // Use every path that later calls take: NCCL connects ranks on the first use of each.
  const Tensor in(scratch_, DType::u8, {size() * greeting_bytes});
  const Tensor out(static_cast<std::byte*>(scratch_) + in.bytes(), DType::u8, in.shape());
  const std::vector<std::int64_t> one_each(index(size()), 1);
  const std::vector<std::size_t> bytes_each(index(size()), greeting_bytes);
  const Shape rows{size(), greeting_bytes};
  TROUPE_CHECK(begin({}, {CollectiveCall::Kind::all_gather, 0, in.bytes()}));
  TROUPE_CHECK(gather_by_nccl(out.rows(0, greeting_bytes), in, bytes_each));
  TROUPE_CHECK(all_to_all(in.reshaped(rows), one_each, out.reshaped(rows), one_each));
  TROUPE_CHECK(broadcast(in, 0));
  last_ = {CollectiveCall::Kind::barrier, 0, 0};
  const auto waited = seat_.watch->wait(seat_.stream);
  if (!waited.ok()) return waited.error();
  return check(*waited, "the barrier");
}

}  // namespace troupe
