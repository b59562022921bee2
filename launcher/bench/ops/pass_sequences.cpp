#include "launcher/bench/ops/pass_sequences.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace troupe {

Sequences make_sequences(std::int64_t rows, std::int64_t context, std::int64_t prefix,
                         std::int32_t block_size, bool decode) {
  Sequences all;
  const std::int64_t longest = decode ? context : std::min(rows, context);
  const std::int64_t count = decode ? rows : (rows + longest - 1) / longest;
  const std::int64_t pages = (longest + block_size - 1) / block_size;
  all.table.resize(static_cast<std::size_t>(count * pages));
  std::iota(all.table.begin(), all.table.end(), 0);
  std::ranges::shuffle(all.table, std::minstd_rand(1));
  for (std::int64_t s = 1; decode && s < count; ++s) {
    std::copy_n(all.table.begin(), prefix / block_size, all.table.begin() + s * pages);
  }
  for (std::int64_t s = 0, row = 0; s < count; ++s) {
    const std::int64_t length = decode ? 1 : std::min(longest, rows - row);
    const std::int64_t first = decode ? context - 1 : 0;
    const SequenceSpan span{static_cast<std::int32_t>(row), static_cast<std::int32_t>(length),
                            static_cast<std::int32_t>(first), static_cast<std::int32_t>(s * pages)};
    all.spans.push_back(span);
    all.numbers.insert(all.numbers.end(),
                       {span.first_row, span.rows, span.first_position, span.block_offset});
    for (std::int64_t p = first; p < first + length; ++p, ++row) {
      const auto page = all.table[static_cast<std::size_t>(s * pages + p / block_size)];
      all.positions.push_back(static_cast<std::int32_t>(p));
      all.slots.push_back(page * block_size + static_cast<std::int32_t>(p % block_size));
    }
  }
  return all;
}

Result<DeviceTensor> uploaded(Ops& ops, const std::vector<std::int32_t>& values,
                              const Shape& shape) {
  TROUPE_TRY(DeviceTensor device, ops.memory().allocate(DType::i32, shape));
  const HostTensor host(DType::i32, shape);
  std::ranges::copy(values, host->as<std::int32_t>());
  ops.memory().upload(host, device);
  TROUPE_CHECK(ops.stream().synchronize());
  return device;
}

}  // namespace troupe
