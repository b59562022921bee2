#include "parallel/collectives/columns_to_rows.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

Result<void> check_columns_to_rows(const Collectives& group, const Tensor& part,
                                   const Tensor& whole) {
  const std::int64_t own = ceil_slice(part[0], {group.rank(), group.size()}).count;
  if (part.dtype() == whole.dtype() && whole[0] == own && whole[1] <= group.size() * part[1]) {
    return {};
  }
  return fail(ErrorCode::invalid_argument, "columns to rows: {} {} of rank {} of {} into {} {}",
              to_string(part.dtype()), part.shape().to_string(), group.rank(), group.size(),
              to_string(whole.dtype()), whole.shape().to_string());
}

Result<Tensor> columns_to_parts(Collectives& group, const Tensor& part, const Tensor& whole,
                                const Tensor& scratch) {
  TROUPE_CHECK(check_columns_to_rows(group, part, whole));
  std::vector<std::int64_t> sent;
  for (int rank = 0; rank < group.size(); ++rank) {
    sent.push_back(ceil_slice(part[0], {rank, group.size()}).count);
  }
  const std::int64_t own = sent[static_cast<std::size_t>(group.rank())];
  const Shape parts{group.size() * own, part[1]};
  if (scratch.elements() < parts.elements()) {
    return fail(ErrorCode::invalid_argument, "columns to rows: {} by way of {} elements",
                parts.to_string(), scratch.elements());
  }
  const Tensor received(scratch.data(), part.dtype(), parts);
  const std::vector<std::int64_t> taken(sent.size(), own);
  TROUPE_CHECK(group.all_to_all(part, sent, received, taken));
  return received;
}

Result<void> Collectives::columns_to_rows(const Tensor& part, const Tensor& whole,
                                          const Tensor& scratch) {
  TROUPE_TRY(const Tensor parts, columns_to_parts(*this, part, whole, scratch));
  const std::size_t row = row_bytes(whole), width = row_bytes(parts);
  const auto* from = static_cast<const std::byte*>(parts.data());
  for (std::size_t done = 0; done < row; done += width) {
    for (std::int64_t r = 0; r < whole[0]; ++r, from += width) {
      auto* const to =
          static_cast<std::byte*>(whole.data()) + static_cast<std::size_t>(r) * row + done;
      std::memcpy(to, from, std::min(width, row - done));
    }
  }
  return {};
}

}  // namespace troupe
