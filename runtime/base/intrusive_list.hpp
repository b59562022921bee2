#pragma once

namespace troupe {

template <class T>
class ListHook;

/// A list of objects that live elsewhere, linked through a ListHook in each of them: so adding and
/// removing allocate nothing, and take the same time however long the list is. The objects do not
/// move while they are in it. Not synchronised.
template <class T, ListHook<T> T::* hook>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const { return first_ == nullptr; }
  /// The one that was added last; null if there is none.
  T* first() const { return first_; }
  /// The next one; null behind the last.
  static T* after(const T& one) { return (one.*hook).after_; }

  /// Adds an object that is in no list of this hook.
  void push_front(T& one) {
    ListHook<T>& at = one.*hook;
    at.after_ = first_;
    at.to_this_ = &first_;
    if (first_ != nullptr) (first_->*hook).to_this_ = &at.after_;
    first_ = &one;
  }
  /// Takes it out of its list, if it is in one.
  static void remove(T& one) {
    ListHook<T>& at = one.*hook;
    if (at.to_this_ == nullptr) return;
    *at.to_this_ = at.after_;
    if (at.after_ != nullptr) (at.after_->*hook).to_this_ = at.to_this_;
    at.after_ = nullptr;
    at.to_this_ = nullptr;
  }

 private:
  T* first_ = nullptr;
};

/// A member by which an object can be in one IntrusiveList. What an object is moved to is in none.
template <class T>
class ListHook {
 public:
  ListHook() = default;
  ListHook(const ListHook&) noexcept {}
  ListHook& operator=(const ListHook&) noexcept { return *this; }
  bool is_listed() const { return to_this_ != nullptr; }

 private:
  template <class U, ListHook<U> U::* hook>
  friend class IntrusiveList;

  T* after_ = nullptr;
  T** to_this_ = nullptr;  ///< what points to this one: the list's first, or the one before
};

}  // namespace troupe
