#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// The bytes of an encoded value: a std::vector of bytes that holds up to `small_capacity` of them
/// without memory of their own. Most arguments and answers are so small, and one thread would free
/// what another one has allocated, whose heaps are locked for that: calls within a process were
/// three times slower. Not safe for several threads at once.
class Bytes {
 public:
  using value_type = std::byte;
  using iterator = std::byte*;
  using const_iterator = const std::byte*;
  static constexpr std::size_t small_capacity = 39;

  Bytes() noexcept = default;
  explicit Bytes(std::size_t size, std::byte value = {}) {
    resize(size);
    std::ranges::fill(*this, value);
  }
  /// Takes the vector's memory.
  Bytes(std::vector<std::byte> bytes) noexcept { become_large(std::move(bytes)); }  // NOLINT
  Bytes(std::initializer_list<std::byte> bytes) : Bytes(bytes.begin(), bytes.end()) {}
  /// Converts each element of the range to a byte.
  template <std::forward_iterator Iterator>
  Bytes(Iterator begin, Iterator end) {
    resize(static_cast<std::size_t>(std::distance(begin, end)));
    std::transform(begin, end, data(), [](auto one) { return static_cast<std::byte>(one); });
  }
  Bytes(const Bytes& other) : Bytes(other.begin(), other.end()) {}
  Bytes(Bytes&& other) noexcept { take(other); }
  Bytes& operator=(const Bytes& other) {
    if (this != &other) *this = Bytes(other);
    return *this;
  }
  Bytes& operator=(Bytes&& other) noexcept {
    if (this == &other) return *this;
    destroy();
    take(other);
    return *this;
  }
  ~Bytes() { destroy(); }

  operator std::vector<std::byte>() const& { return {begin(), end()}; }  // NOLINT
  operator std::vector<std::byte>() && {                                 // NOLINT
    if (is_large()) return std::move(large());
    return {begin(), end()};
  }

  std::byte* data() { return is_large() ? large().data() : small_.data(); }
  const std::byte* data() const { return is_large() ? large().data() : small_.data(); }
  std::size_t size() const { return is_large() ? large().size() : small_size_; }
  std::size_t capacity() const { return is_large() ? large().capacity() : small_capacity; }
  bool empty() const { return size() == 0; }
  iterator begin() { return data(); }
  iterator end() { return data() + size(); }
  const_iterator begin() const { return data(); }
  const_iterator end() const { return data() + size(); }
  std::byte& operator[](std::size_t i) { return data()[i]; }
  const std::byte& operator[](std::size_t i) const { return data()[i]; }
  std::byte& front() { return *data(); }
  std::byte& back() { return data()[size() - 1]; }

  void reserve(std::size_t bytes) {
    if (is_large()) return large().reserve(bytes);
    if (bytes <= small_capacity) return;
    std::vector<std::byte> grown;
    grown.reserve(bytes);
    grown.assign(begin(), begin() + std::min<std::size_t>(small_size_, small_capacity));
    become_large(std::move(grown));
  }
  /// New bytes are zero.
  void resize(std::size_t bytes) {
    if (!is_large() && bytes <= small_capacity) {
      if (bytes > small_size_) std::memset(&small_[small_size_], 0, bytes - small_size_);
      small_size_ = static_cast<std::uint8_t>(bytes);
      return;
    }
    reserve(bytes);
    large().resize(bytes);
  }
  void clear() { resize(0); }
  void push_back(std::byte byte) {
    if (size() == capacity()) reserve(2 * size());
    resize(size() + 1);
    back() = byte;
  }
  /// Appends `bytes`, which are not this object's own.
  void append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const std::size_t old = size(), sum = old + bytes.size();
    if (bytes.size() > capacity() - old) reserve(std::max(2 * old, sum));
    resize(sum);
    std::memcpy(data() + old, bytes.data(), bytes.size());
  }

  friend bool operator==(const Bytes& a, const Bytes& b) { return std::ranges::equal(a, b); }

 private:
  static constexpr std::uint8_t large_mark = 0xff;

  bool is_large() const { return small_size_ == large_mark; }
  std::vector<std::byte>& large() {
    return *std::launder(reinterpret_cast<std::vector<std::byte>*>(small_.data()));
  }
  const std::vector<std::byte>& large() const {
    return *std::launder(reinterpret_cast<const std::vector<std::byte>*>(small_.data()));
  }
  void become_large(std::vector<std::byte> bytes) noexcept {
    new (small_.data()) std::vector<std::byte>(std::move(bytes));
    small_size_ = large_mark;
  }
  /// Of an object that holds nothing: takes the other one's bytes and leaves it empty.
  void take(Bytes& other) noexcept {
    if (other.is_large()) {
      become_large(std::move(other.large()));
      std::destroy_at(&other.large());
    } else {
      small_ = other.small_;
      small_size_ = other.small_size_;
    }
    other.small_size_ = 0;
  }
  void destroy() noexcept {
    if (is_large()) std::destroy_at(&large());
    small_size_ = 0;
  }

  /// The bytes, or the vector that has them.
  alignas(std::vector<std::byte>) std::array<std::byte, small_capacity> small_{};
  std::uint8_t small_size_ = 0;  ///< large_mark: they are in large()
};
static_assert(sizeof(Bytes) == 40);

}  // namespace troupe
