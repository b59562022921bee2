#pragma once

#include <memory>
#include <utility>

#include "runtime/call/codec.hpp"
#include "runtime/object/borrow.hpp"
#include "runtime/object/object_id.hpp"

namespace troupe {

class ObjectStore;

/// A process's one share in an object: all ObjectRefs of the process to the object hold it. Made by
/// ObjectStore alone. While it lives, the object does.
class ObjectShare {
 public:
  ObjectShare(ObjectAddress address, std::weak_ptr<ObjectStore> store)
      : address_(std::move(address)), store_(std::move(store)) {}
  ~ObjectShare();  ///< tells the store
  ObjectShare(const ObjectShare&) = delete;
  ObjectShare& operator=(const ObjectShare&) = delete;

  const ObjectAddress& address() const { return address_; }
  /// Null once the runtime of this process is shut down.
  std::shared_ptr<ObjectStore> store() const { return store_.lock(); }

 private:
  friend class StoreImpl;
  const ObjectAddress address_;
  const std::weak_ptr<ObjectStore> store_;
  // Of the store, under its lock.
  std::shared_ptr<Borrow> borrow_;  ///< null in the owner
  std::uint64_t registration_ = 0;  ///< of the borrow
  std::shared_ptr<const Bytes> small_;
  std::weak_ptr<const void> mapped_;
  std::span<const std::byte> mapped_bytes_;
};
using ObjectSharePtr = std::shared_ptr<const ObjectShare>;

/// A reference on its way between processes.
struct ObjectOnTheWire {
  ObjectAddress object;
  /// Of the sender, which keeps the object alive until the receiver says that it has it
  /// (ObjectStore::hold). 0: a call's arguments, alive until the call is answered.
  std::uint64_t hold = 0;
  std::string holder;  ///< the sender's endpoint; empty without a hold

  template <class Archive>
  void fields(Archive& archive) {
    archive(object, hold, holder);
  }
};

namespace object_detail {
ObjectOnTheWire to_wire(const ObjectSharePtr& share, Encoder& encoder);
ObjectSharePtr from_wire(const ObjectOnTheWire& wire, const std::weak_ptr<CallHub>& hub);
}  // namespace object_detail

/// Refers to an object of type T somewhere in the job (Cluster::put, ActorContext::put) and keeps
/// it there. Copyable, comparable, and encodable: an argument or an answer of a call, a part of
/// such, or a part of another object. Bytes that were encoded by hand keep nothing alive. May
/// outlive the runtime. Different refs may be used by different threads.
template <class T>
class ObjectRef {
 public:
  using Value = T;

  ObjectRef() = default;  ///< refers to nothing; get fails with invalid_argument
  explicit ObjectRef(ObjectSharePtr share) : share_(std::move(share)) {}

  ObjectId id() const { return share_ ? share_->address().id : ObjectId{}; }
  const ObjectSharePtr& share() const { return share_; }
  explicit operator bool() const { return share_ != nullptr; }
  friend bool operator==(const ObjectRef& a, const ObjectRef& b) { return a.id() == b.id(); }
  friend auto operator<=>(const ObjectRef& a, const ObjectRef& b) { return a.id() <=> b.id(); }

  template <class Archive>
  void fields(Archive& archive) {
    if constexpr (Archive::decoding) {
      ObjectOnTheWire wire;
      archive(wire);
      share_ = archive.ok() ? object_detail::from_wire(wire, archive.hub()) : nullptr;
    } else {
      archive(object_detail::to_wire(share_, archive));
    }
  }

 private:
  ObjectSharePtr share_;
};

}  // namespace troupe

template <class T>
struct std::hash<troupe::ObjectRef<T>> {
  std::size_t operator()(const troupe::ObjectRef<T>& ref) const noexcept {
    return std::hash<troupe::ObjectId>()(ref.id());
  }
};
