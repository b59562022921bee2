#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Extents of a tensor, at most four, outermost first.
class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents)) {}
  explicit Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
    assert(rank_ <= max_rank);
    for (int i = 0; i < rank_; ++i) extents_[i] = extents[i];
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return assert(i < rank_), extents_[i]; }
  /// Product of the extents; 1 for rank 0.
  std::int64_t elements() const;
  /// "[3, 256]".
  std::string to_string() const;
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// A view of a dense row-major tensor: does not own its memory, is as cheap to copy as a pointer,
/// and is valid as long as the owner's memory is. Constness applies to the view, not the elements
/// (as in std::span).
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape) : data_(data), dtype_(dtype), shape_(shape) {}

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t operator[](int i) const { return shape_[i]; }  ///< extent i
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }
  bool empty() const { return elements() == 0; }

  /// The elements as T, which must be the tensor's dtype (asserted).
  template <class T>
  T* as() const {
    return assert(dtype_ == dtype_of<T>), static_cast<T*>(data_);
  }
  /// All elements as a span of T.
  template <class T>
  std::span<T> span() const {
    return {as<T>(), static_cast<std::size_t>(elements())};
  }
  /// Rows [begin, begin + count) of the outermost extent.
  Tensor rows(std::int64_t begin, std::int64_t count) const;
  /// The same elements under another shape of as many elements (asserted).
  Tensor reshaped(Shape shape) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_{0};
};

/// Returns invalid_argument naming `what`, the expected and the found shape and dtype, unless they
/// agree. For the checks of public operations.
Result<void> check_shape(std::string_view what, const Tensor& tensor, const Shape& shape,
                         DType dtype);

/// Owns 64-byte-aligned host memory for one tensor, zeroed. Movable; the view stays valid over a
/// move.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, Shape shape);

  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: a view is what an owner is used as
  const Tensor* operator->() const { return &view_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  Tensor view_;
};

/// Owns a tensor's memory on whichever device made it (`Ops::allocate`); freed by that device's
/// `release`. Movable; the view stays valid over a move.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(const Tensor& view, std::function<void(void*)> release)
      : memory_(view.data(), std::move(release)), view_(view) {}

  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: a view is what an owner is used as
  const Tensor* operator->() const { return &view_; }

 private:
  std::unique_ptr<void, std::function<void(void*)>> memory_;
  Tensor view_;
};

}  // namespace troupe
