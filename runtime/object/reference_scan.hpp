#pragma once

#include <type_traits>

#include "runtime/call/codec.hpp"
#include "runtime/object/object_ref.hpp"

namespace troupe {

/// Walks over the types of an encodable value, and finds whether ObjectRefs are among them. An
/// archive like Encoder, for `fields` functions.
class ReferenceScan {
 public:
  static constexpr bool decoding = false;

  template <class... Ts>
  ReferenceScan& operator()(const Ts&...) {
    (look<Ts>(), ...);
    return *this;
  }
  bool found() const { return found_; }

  template <class T>
  void look() {
    using namespace codec_detail;
    if constexpr (is_scalar<T> || std::is_same_v<T, std::string>) {
      return;
    } else if constexpr (IsRef<T>::value) {
      found_ = true;
    } else if constexpr (IsVector<T>::value || IsOptional<T>::value || IsArray<T>::value) {
      look<typename T::value_type>();
    } else if constexpr (IsTuple<T>::value) {
      []<std::size_t... i>(ReferenceScan& scan, std::index_sequence<i...>) {
        (scan.look<std::tuple_element_t<i, T>>(), ...);
      }(*this, std::make_index_sequence<std::tuple_size_v<T>>());
    } else if constexpr (IsMap<T>::value) {
      look<typename T::key_type>();
      look<typename T::mapped_type>();
    } else {
      // A type may hold others of its own type.
      static thread_local bool is_open = false;
      if (is_open) return;
      is_open = true;
      T value{};
      value.fields(*this);
      is_open = false;
    }
  }

 private:
  template <class T>
  struct IsRef : std::false_type {};
  template <class T>
  struct IsRef<ObjectRef<T>> : std::true_type {};

  bool found_ = false;
};

/// Whether values of T may hold ObjectRefs.
template <class T>
bool may_hold_refs() {
  if constexpr (std::is_void_v<T>) {
    return false;
  } else {
    static const bool holds = [] {
      ReferenceScan scan;
      scan.look<T>();
      return scan.found();
    }();
    return holds;
  }
}

}  // namespace troupe
