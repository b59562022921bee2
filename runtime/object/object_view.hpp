#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/call/codec.hpp"
#include "runtime/object/object_ref.hpp"

namespace troupe {

/// The bytes of an object, which stay where they are while `keep` lives.
struct ObjectData {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
};

namespace object_detail {

template <class T>
struct BlockOf {
  static constexpr bool is_block = false;
};
template <class E>
  requires(codec_detail::is_block<E> || std::is_same_v<E, std::byte>)
struct BlockOf<std::vector<E>> {
  static constexpr bool is_block = true;
  using View = std::span<const E>;
  using Element = E;
};
template <>
struct BlockOf<std::string> {
  static constexpr bool is_block = true;
  using View = std::string_view;
  using Element = char;
};

/// What an ObjectView of T has beside the bytes: nothing, or the decoded value.
template <class T>
struct Decoded {
  T value{};
};
struct NotDecoded {};

/// What `->` of a view that is made on the way gives.
template <class View>
struct Arrow {
  View view;
  const View* operator->() const { return &view; }
};

}  // namespace object_detail

/// Types whose objects are the elements one after the other, read where they lie: std::string and
/// std::vector of numbers, enums or bytes (not bool).
template <class T>
concept BlockType = object_detail::BlockOf<T>::is_block;

/// An object that was fetched. It keeps the bytes, and the object, as long as it lives, also after
/// its owner has ended. For block types it is a view into memory that processes share: nothing was
/// copied, and nobody can write there (a std::span<const E>, a std::string_view). Others are
/// decoded once. Copyable; const functions are callable from any thread.
template <class T>
class ObjectView {
 public:
  using Block = object_detail::BlockOf<T>;

  /// `*view` and `view.get()`: a span or string_view of the elements, else `const T&`.
  decltype(auto) get() const {
    if constexpr (BlockType<T>) {
      using E = typename Block::Element;
      return typename Block::View(reinterpret_cast<const E*>(data_.bytes.data()),
                                  data_.bytes.size() / sizeof(E));
    } else {
      return static_cast<const T&>(value_->value);
    }
  }
  decltype(auto) operator*() const { return get(); }
  /// `view->size()`: of the span or string_view, or of the value.
  auto operator->() const {
    if constexpr (BlockType<T>) {
      return object_detail::Arrow<typename Block::View>{get()};
    } else {
      return &value_->value;
    }
  }
  /// The bytes as they lie in memory.
  std::span<const std::byte> bytes() const { return data_.bytes; }

  static Result<ObjectView> of(ObjectData data, ObjectSharePtr share,
                               const std::weak_ptr<CallHub>& hub) {
    ObjectView view;
    if constexpr (BlockType<T>) {
      if (data.bytes.size() % sizeof(typename Block::Element) != 0) {
        return fail(ErrorCode::corrupt_data, "an object of {} bytes is no array of its type",
                    data.bytes.size());
      }
    } else {
      TROUPE_TRY(auto value, decode<T>(data.bytes, hub));
      view.value_ =
          std::make_shared<object_detail::Decoded<T>>(object_detail::Decoded<T>{std::move(value)});
    }
    view.data_ = std::move(data);
    view.share_ = std::move(share);
    return view;
  }

 private:
  ObjectView() = default;
  ObjectSharePtr share_;
  ObjectData data_;
  std::conditional_t<BlockType<T>, object_detail::NotDecoded,
                     std::shared_ptr<const object_detail::Decoded<T>>>
      value_;
};

}  // namespace troupe
