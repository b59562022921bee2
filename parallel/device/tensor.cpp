#include "parallel/device/tensor.hpp"

#include <cstdlib>
#include <memory>
#include <new>

#include <fmt/ranges.h>
#include <sys/mman.h>

namespace troupe {

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= extents_[i];
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(std::span(extents_).first(rank_), ", "));
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  assert(shape_.rank() > 0 && begin >= 0 && count >= 0 && begin + count <= shape_[0]);
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::int64_t row_elements = 1;
  extents[0] = count;
  for (int i = 1; i < shape_.rank(); ++i) row_elements *= extents[i] = shape_[i];
  auto* start = static_cast<std::byte*>(data_) + begin * row_elements * size_of(dtype_);
  return {start, dtype_, Shape(std::span<const std::int64_t>(extents).first(shape_.rank()))};
}

Tensor Tensor::reshaped(Shape shape) const {
  assert(shape.elements() == elements());
  return {data_, dtype_, shape};
}

Result<void> check_shape(std::string_view what, const Tensor& tensor, const Shape& shape,
                         DType dtype) {
  if (tensor.shape() == shape && tensor.dtype() == dtype) return {};
  return fail(ErrorCode::invalid_argument, "{}: expected {} {}, found {} {}", what,
              to_string(dtype), shape.to_string(), to_string(tensor.dtype()),
              tensor.shape().to_string());
}

namespace {
constexpr std::size_t huge_page = std::size_t{2} << 20;
}  // namespace

HostTensor::HostTensor(DType dtype, Shape shape) {
  std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  // A large tensor begins at a huge page.
  const std::size_t alignment = bytes < huge_page ? 64 : huge_page;
  std::size_t room = bytes + alignment;
  // calloc gives large areas as untouched pages, so a large cache costs nothing until it is used.
  memory_.reset(std::calloc(room, 1));
  if (memory_ == nullptr) throw std::bad_alloc();
  void* start = memory_.get();
  std::align(alignment, bytes, start, room);
  // With 4 KiB pages a cache of gigabytes misses the TLB at every block. Advice only: without huge
  // pages nothing is lost.
  if (bytes >= huge_page) ::madvise(start, bytes / huge_page * huge_page, MADV_HUGEPAGE);
  view_ = Tensor(start, dtype, shape);
}

void HostTensor::Free::operator()(void* memory) const { std::free(memory); }

}  // namespace troupe
