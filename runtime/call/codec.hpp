#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/bytes.hpp"

namespace troupe {

class CallHub;

namespace codec_detail {
inline const std::weak_ptr<CallHub> no_hub{};
}

/// Arguments, answers and control messages on the wire. Encodable are: bool, integers, floats and
/// enums (little endian, fixed size), std::string, std::vector, std::array, std::optional,
/// std::pair, std::tuple, std::map, std::unordered_map, and structs that list their members once:
///
///     struct Point {
///       int x = 0, y = 0;
///       template <class Archive> void fields(Archive& archive) { archive(x, y); }
///     };
///
/// Types must be default constructible. Vectors of arithmetic types and enums (not bool) are copied
/// in one memcpy. There are no type tags and no versions: both ends are the same build (the
/// handshake checks it). Decoding is bounds checked: malformed input gives a corrupt_data error,
/// never undefined behaviour, and never reserves more memory than a constant times the bytes that
/// the message holds.
class Encoder {
 public:
  static constexpr bool decoding = false;

  Encoder() = default;
  /// For the answer of a call that came in over this hub; the pointer must outlive the encoder.
  explicit Encoder(const std::weak_ptr<CallHub>& answering) : answering_(&answering) {}
  explicit Encoder(std::weak_ptr<CallHub>&& answering) = delete;

  /// Appends the values in order.
  template <class... Ts>
  Encoder& operator()(const Ts&... values) {
    (put(values), ...);
    return *this;
  }

  void put_raw(const void* data, std::size_t bytes) {
    bytes_.append({static_cast<const std::byte*>(data), bytes});
  }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  std::size_t size() const { return bytes_.size(); }
  Bytes take() { return std::move(bytes_); }

  /// What must live until the receiver has decoded the bytes; for `fields` of references.
  void keep(std::shared_ptr<const void> what) { kept_.push_back(std::move(what)); }
  std::vector<std::shared_ptr<const void>> take_kept() { return std::move(kept_); }
  const std::weak_ptr<CallHub>& answering() const { return *answering_; }

 private:
  template <class T>
  void put(const T& value);

  Bytes bytes_;
  std::vector<std::shared_ptr<const void>> kept_;
  const std::weak_ptr<CallHub>* answering_ = &codec_detail::no_hub;
};

/// Reads what an Encoder wrote. It keeps the first error, and later reads leave their targets
/// untouched: call `finish` at the end. The bytes and the hub's pointer must outlive the decoder.
class Decoder {
 public:
  static constexpr bool decoding = true;

  explicit Decoder(std::span<const std::byte> bytes,
                   const std::weak_ptr<CallHub>& hub = codec_detail::no_hub)
      : rest_(bytes), hub_(&hub) {}
  Decoder(std::span<const std::byte> bytes, std::weak_ptr<CallHub>&& hub) = delete;

  template <class... Ts>
  Decoder& operator()(Ts&... values) {
    (get(values), ...);
    return *this;
  }

  /// Ok if every value was read and no bytes are left over.
  Result<void> finish() const {
    if (failed_) return fail(ErrorCode::corrupt_data, "malformed message: {}", why_);
    if (!rest_.empty()) {
      return fail(ErrorCode::corrupt_data, "malformed message: {} bytes left over", rest_.size());
    }
    return {};
  }
  bool ok() const { return !failed_; }
  std::size_t remaining() const { return rest_.size(); }
  /// Marks the message as malformed; for `fields` functions that check what they read.
  void reject(const char* why) {
    if (!failed_) why_ = why;
    failed_ = true;
  }
  /// The call plane that decoded handles use.
  const std::weak_ptr<CallHub>& hub() const { return *hub_; }

  bool get_raw(void* out, std::size_t bytes) {
    if (failed_) return false;
    if (bytes > rest_.size()) return reject("it ends too early"), false;
    if (bytes != 0) std::memcpy(out, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }
  /// Takes the next `bytes` bytes without a copy; empty and failed if there are fewer.
  std::span<const std::byte> take_raw(std::size_t bytes) {
    if (failed_) return {};
    if (bytes > rest_.size()) return reject("it ends too early"), std::span<const std::byte>{};
    auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }

 private:
  template <class T>
  void get(T& value);
  /// Reads an element count; each element takes at least `min_bytes` bytes of the rest.
  std::size_t get_count(std::size_t min_bytes) {
    std::uint64_t count = 0;
    if (!get_raw(&count, sizeof count)) return 0;
    if (count > rest_.size() / min_bytes) return reject("a count exceeds the message"), 0;
    return static_cast<std::size_t>(count);
  }

  std::span<const std::byte> rest_;
  const std::weak_ptr<CallHub>* hub_;
  bool failed_ = false;
  const char* why_ = "";
};

/// The encodings of `values`, one after the other.
template <class... Ts>
Bytes encode(const Ts&... values) {
  Encoder encoder;
  encoder(values...);
  return encoder.take();
}

/// Reads one T that fills `bytes` exactly.
template <class T>
Result<T> decode(std::span<const std::byte> bytes,
                 const std::weak_ptr<CallHub>& hub = codec_detail::no_hub) {
  Decoder decoder(bytes, hub);
  T value{};
  decoder(value);
  TROUPE_CHECK(decoder.finish());
  return value;
}

namespace codec_detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <>
struct IsVector<Bytes> : std::true_type {};
template <class T>
struct IsArray : std::false_type {};
template <class T, std::size_t n>
struct IsArray<std::array<T, n>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsTuple : std::false_type {};
template <class... Ts>
struct IsTuple<std::tuple<Ts...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class K, class V>
struct IsMap<std::map<K, V>> : std::true_type {};
template <class K, class V>
struct IsMap<std::unordered_map<K, V>> : std::true_type {};

template <class T>
inline constexpr bool is_scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;
/// Scalars for which every bit pattern is a value, so that an array of them may be copied as it is.
template <class T>
inline constexpr bool is_block = is_scalar<T> && !std::is_same_v<T, bool>;

}  // namespace codec_detail

template <class T>
void Encoder::put(const T& value) {
  using namespace codec_detail;
  if constexpr (std::is_same_v<T, bool>) {
    const std::uint8_t byte = value ? 1 : 0;
    put_raw(&byte, 1);
  } else if constexpr (is_scalar<T>) {
    put_raw(&value, sizeof value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    put<std::uint64_t>(value.size());
    put_raw(value.data(), value.size());
  } else if constexpr (IsVector<T>::value) {
    put<std::uint64_t>(value.size());
    if constexpr (is_block<typename T::value_type>) {
      put_raw(value.data(), value.size() * sizeof(typename T::value_type));
    } else {
      for (const auto& element : value) put<typename T::value_type>(element);
    }
  } else if constexpr (IsArray<T>::value) {
    for (const auto& element : value) put(element);
  } else if constexpr (IsOptional<T>::value) {
    put(value.has_value());
    if (value) put(*value);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([this](const auto&... elements) { (put(elements), ...); }, value);
  } else if constexpr (IsMap<T>::value) {
    put<std::uint64_t>(value.size());
    for (const auto& [key, mapped] : value) {
      put(key);
      put(mapped);
    }
  } else {
    // One `fields` serves both directions; the encoder only reads.
    const_cast<T&>(value).fields(*this);
  }
}

template <class T>
void Decoder::get(T& value) {
  using namespace codec_detail;
  if constexpr (std::is_same_v<T, bool>) {
    std::uint8_t byte = 0;
    if (!get_raw(&byte, 1)) return;
    if (byte > 1) return reject("a bool is neither 0 nor 1");
    value = byte == 1;
  } else if constexpr (is_scalar<T>) {
    get_raw(&value, sizeof value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const auto bytes = take_raw(get_count(1));
    if (ok()) value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else if constexpr (IsVector<T>::value) {
    using Element = typename T::value_type;
    if constexpr (is_block<Element>) {
      const std::size_t count = get_count(sizeof(Element));
      value.resize(count);
      get_raw(value.data(), count * sizeof(Element));
    } else {
      // Elements are appended one by one: memory grows with what was really read.
      const std::size_t count = get_count(1);
      value.clear();
      for (std::size_t i = 0; i < count && ok(); ++i) {
        Element element{};
        get(element);
        value.push_back(std::move(element));
      }
    }
  } else if constexpr (IsArray<T>::value) {
    for (auto& element : value) get(element);
  } else if constexpr (IsOptional<T>::value) {
    bool present = false;
    get(present);
    if (!present || !ok()) return value.reset();
    get(value.emplace());
  } else if constexpr (IsTuple<T>::value) {
    std::apply([this](auto&... elements) { (get(elements), ...); }, value);
  } else if constexpr (IsMap<T>::value) {
    const std::size_t count = get_count(1);
    value.clear();
    for (std::size_t i = 0; i < count && ok(); ++i) {
      typename T::key_type key{};
      typename T::mapped_type mapped{};
      get(key);
      get(mapped);
      value.insert_or_assign(std::move(key), std::move(mapped));
    }
  } else {
    value.fields(*this);
  }
}

}  // namespace troupe
