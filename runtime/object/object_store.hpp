#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/object/encoded_value.hpp"
#include "runtime/object/object_info.hpp"
#include "runtime/object/object_ref.hpp"
#include "runtime/object/object_source.hpp"
#include "runtime/object/object_view.hpp"
#include "runtime/object/registration_scope.hpp"
#include "runtime/process/unique_fd.hpp"
#include "runtime/security/plane_keys.hpp"

// The design of the object plane.
//
// Who holds what. There is no server: each process has an ObjectStore, which holds what the process
// has put. Small objects are bytes on its heap; they travel inside answers. Large ones lie in
// segments, sealed memfds that the process has mapped and uses again, so a put is a memcpy. Another
// process of the machine asks for the descriptor once per get and maps it for reading only. Once it
// knows the token of the owner's SegmentServer it asks that alone, which pins the object and gives
// the descriptor in one round trip.
//
// Ownership. The process that puts an object owns it. It knows who has references (ReferenceTable)
// and where copies are (CopyTable), and nobody else does. A process has one ObjectShare for all its
// references to an object; making one sends `borrow`, its end `give_back`, after `borrow` was
// acknowledged. A reference in a call's arguments is kept by the caller until the call is answered,
// and the answer waits until the owners have acknowledged what the method was given
// (RegistrationScope, when_registered), at most for ObjectStoreOptions::registering_limit. One in
// an answer is kept by the answering process until the receiver says `received`, at most for
// ObjectStoreOptions::hold_limit.
//
// Messages between stores are calls on the call plane (to store_at(endpoint)): `notes` (borrow,
// give_back, received, unpin, drop_copy, copied, pull_failed: batched, one such call under way to
// each peer), `locate` (reader to owner: the bytes, or who holds them, or "pull it, you are the
// first of your machine"), `open` (reader to holder: pins the object and tells its segment),
// `await`, `make_room`, `offer` (the process that has computed an object to its owner), `cancel`,
// and `live`, which is never answered: it fails when the peer's process ends, and so every store
// knows of the ends of those that it keeps something for.
//
// Links that break. A store whose `live` has failed asks `are_you_there` on a new link, and takes
// the peer for gone only if that fails, too. The link to a host without power ends late; the driver
// tells all stores of nodes that are lost (on_node_lost). Notes have sequence numbers, so what is
// sent again counts once. Pins have numbers of their reader's, which gives one back if it does not
// know whether it was made. Readers that give up have what waits for them cancelled.
//
// Between machines the first reader pulls the object in pieces over TLS connections of its own
// (DataClient, DataServer) and holds a copy, which the owner then names to others of that machine.
//
// Limits. All stores of a node count their segments in one table in shared memory (NodeLedger). Who
// finds the node full frees its spare segments, spills its least recently used objects that nobody
// has mapped, then asks the store with the least recently used one to do so. A spilled object is a
// file without a name, which ends with its process, however that ends. Each segment is a mapping,
// of which the kernel lets a process have 65,530: a process that comes near spills its own objects.
namespace troupe {

/// Objects up to here are small, as in Ray: below it the messages for a segment (a descriptor, a
/// mapping, a pin) cost more than copying the bytes through a socket does.
inline constexpr std::size_t max_small_bytes = std::size_t{100} << 10;

/// So long an answer waits for owners that do not acknowledge the references that came with its
/// call, its task or its construction.
inline constexpr std::chrono::seconds registering_limit{10};

struct ObjectStoreOptions {
  std::string process_name;
  std::string node;
  std::string locality;  ///< see NetworkAddress
  std::string address;   ///< numeric; empty: no other machine takes part
  PortRange ports{};
  CallKeys keys;
  std::uint64_t node_bytes = 0;  ///< 0: 30 % of the memory that is available
  std::string spill_folder;      ///< empty: nothing is spilled
  std::size_t max_mappings = 0;  ///< 0: see max_object_mappings
  /// Shared by the stores of the node: the memory of its NodeLedger, of these bytes.
  std::function<Result<UniqueFd>(std::size_t bytes)> ledger_memory;
  /// A reference in an answer that has not been received by then is lost.
  std::chrono::milliseconds hold_limit{60000};
  std::chrono::milliseconds registering_limit = troupe::registering_limit;
  std::chrono::milliseconds pull_timeout{10000};  ///< without a byte
};

struct ObjectCounts {
  std::uint64_t owned = 0;          ///< objects of this process
  std::uint64_t held = 0;           ///< objects in segments or files of this process
  std::uint64_t held_bytes = 0;     ///< of these, in memory
  std::uint64_t spilled_bytes = 0;  ///< of these, in files
  std::uint64_t pinned_bytes = 0;   ///< of these, of objects that somebody has mapped
  std::uint64_t spills = 0, restores = 0, pulls = 0, pulled_bytes = 0;
  std::uint64_t shares = 0;  ///< objects that this process has references to
  std::uint64_t waits = 0;   ///< for pending objects of this process, of any process
  std::uint64_t holds = 0;   ///< references in answers that have not been received
};

/// Which of some refs are ready; both in the order in which they were given.
struct ReadyIndices {
  std::vector<std::size_t> ready, not_ready;
};

/// The objects of one process; see above. All functions are callable from any thread; get, wait and
/// put may block, so not from callbacks of the runtime.
class ObjectStore {
 public:
  static Result<std::shared_ptr<ObjectStore>> start(std::shared_ptr<CallHub> hub,
                                                    ObjectStoreOptions options);
  virtual ~ObjectStore() = default;

  /// Makes an object of a copy of the bytes, which keeps `kept`. Errors: resource_exhausted, with
  /// who holds the memory; cancelled.
  virtual Result<ObjectSharePtr> put_bytes(std::span<const std::byte> bytes,
                                           std::vector<std::shared_ptr<const void>> kept) = 0;
  /// Errors: object_lost with the owner and the cause; timed_out; cancelled; the object's own if it
  /// was fulfilled with one.
  virtual Result<ObjectData> get_data(const ObjectSharePtr& share,
                                      std::chrono::nanoseconds timeout) = 0;
  /// Waits until `count` of them are ready: can be had by get, or never will.
  virtual ReadyIndices wait_ready(std::span<const ObjectSharePtr> shares, std::size_t count,
                                  std::chrono::nanoseconds timeout) = 0;

  /// For results that are computed elsewhere: makes an object that is not there yet. `source`, if
  /// given, computes it again when all its copies are lost.
  virtual ObjectSharePtr make_pending(std::shared_ptr<ObjectSource> source) = 0;
  /// Gives a pending object of this process its bytes, or an error that get returns. Ignored for
  /// one that is not pending or is gone.
  virtual void fulfil(const ObjectId& object, Result<Bytes> value,
                      std::vector<std::shared_ptr<const void>> kept) = 0;
  /// In another process: gives a pending object its bytes, which stay here, and tells its owner so.
  /// Nothing is kept if that does not want them any more. Blocks until the owner knows. Errors:
  /// resource_exhausted, with who holds the memory; already_exists for an object that is here;
  /// those of calls, if the owner is not reached.
  virtual Result<void> hold_result(const ObjectAddress& object,
                                   std::span<const std::byte> bytes) = 0;
  /// Whether it is an object of this process that waits for its bytes.
  virtual bool is_pending(const ObjectId& object) const = 0;
  /// See ObjectAccess::cancel.
  virtual void cancel(const ObjectSharePtr& share) = 0;

  /// This process's share in the object of a ref that has come in.
  virtual ObjectSharePtr adopt(const ObjectOnTheWire& wire) = 0;
  /// Keeps the share until its receiver has registered; returns the number for the wire.
  virtual std::uint64_t hold(ObjectSharePtr share) = 0;
  virtual const std::string& endpoint() const = 0;
  virtual const std::string& locality() const = 0;
  /// Runs `then` once the owners have acknowledged these: at once, in the calling thread, if none
  /// is open. Those who do not are waited for until ObjectStoreOptions::registering_limit.
  virtual void when_registered(const Registrations& which, std::function<void()> then) = 0;
  virtual bool is_registering() const = 0;

  /// The node of this locality is lost: its stores that do not answer within two seconds are gone.
  virtual void on_node_lost(const std::string& locality, const std::string& how) = 0;

  virtual ObjectCounts counts() const = 0;
  /// Those objects of this process that have larger ids than `after`, at most `limit`, by id.
  virtual ObjectPage list(const ObjectId& after, std::size_t limit) const = 0;
  virtual void stop() = 0;  ///< ends its threads; calls fail with `cancelled`. Idempotent

 private:
  friend class ObjectShare;
  virtual void drop(ObjectShare& share) = 0;
};

/// See Cluster::put.
template <class T>
Result<ObjectRef<T>> put_object(ObjectStore& store, const T& value) {
  ObjectSharePtr share;
  if constexpr (BlockType<T>) {
    TROUPE_TRY(share, store.put_bytes(std::as_bytes(std::span(value)), {}));
  } else {
    auto encoded = encode_value(value);
    TROUPE_TRY(share, store.put_bytes(encoded.bytes, std::move(encoded.kept)));
  }
  return ObjectRef<T>(std::move(share));
}

/// Waits until these are registered.
void wait_until_registered(ObjectStore& store, const Registrations& which,
                           std::chrono::nanoseconds timeout);

/// See Cluster::get.
template <class T>
Result<ObjectView<T>> get_object(ObjectStore& store, const std::weak_ptr<CallHub>& hub,
                                 const ObjectRef<T>& ref, std::chrono::nanoseconds timeout) {
  if (!ref) return fail(ErrorCode::invalid_argument, "get of an empty object reference");
  TROUPE_TRY(auto data, store.get_data(ref.share(), timeout));
  const RegistrationScope registering;
  TROUPE_TRY(auto view, ObjectView<T>::of(std::move(data), ref.share(), hub));
  // Refs in the object are kept by it until they are this process's own.
  if constexpr (!BlockType<T>) wait_until_registered(store, registering.open(), timeout);
  return view;
}

/// The refs that are ready, and the others.
template <class T>
struct WaitedRefs {
  std::vector<ObjectRef<T>> ready, not_ready;
};

/// See Cluster::wait.
template <class T>
WaitedRefs<T> wait_for_objects(ObjectStore& store, std::span<const ObjectRef<T>> refs,
                               std::size_t count, std::chrono::nanoseconds timeout) {
  std::vector<ObjectSharePtr> shares;
  for (const auto& ref : refs) shares.push_back(ref.share());
  const ReadyIndices indices = store.wait_ready(shares, count, timeout);
  WaitedRefs<T> waited;
  for (const std::size_t i : indices.ready) waited.ready.push_back(refs[i]);
  for (const std::size_t i : indices.not_ready) waited.not_ready.push_back(refs[i]);
  return waited;
}

}  // namespace troupe
