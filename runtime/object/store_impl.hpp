#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/call/future.hpp"
#include "runtime/object/copy_table.hpp"
#include "runtime/object/data_plane.hpp"
#include "runtime/object/held_objects.hpp"
#include "runtime/object/node_ledger.hpp"
#include "runtime/object/object_store.hpp"
#include "runtime/object/reference_table.hpp"
#include "runtime/object/segment_pool.hpp"
#include "runtime/object/segment_server.hpp"
#include "runtime/object/store_messages.hpp"
#include "runtime/object/task_thread.hpp"

namespace troupe {

/// The one implementation of ObjectStore. store_impl.cpp: puts, shares and what an owner does;
/// store_notes.cpp: what is told to other stores, and their ends; store_serve.cpp: what others ask;
/// store_get.cpp: get, pull and wait; store_results.cpp: what is computed elsewhere;
/// store_room.cpp: segments, spilling and restoring.
///
/// mutex_ is held for tables only: no call, file or segment is touched under it. What follows from
/// a change of the tables is collected in a Later and done by finish() without the lock.
class StoreImpl final : public ObjectStore,
                        public CallTarget,
                        public std::enable_shared_from_this<StoreImpl> {
 public:
  StoreImpl(std::shared_ptr<CallHub> hub, ObjectStoreOptions options);
  ~StoreImpl() override { stop(); }

  Result<ObjectSharePtr> put_bytes(std::span<const std::byte> bytes,
                                   std::vector<std::shared_ptr<const void>> kept) override;
  Result<ObjectData> get_data(const ObjectSharePtr& share,
                              std::chrono::nanoseconds timeout) override;
  ReadyIndices wait_ready(std::span<const ObjectSharePtr> shares, std::size_t count,
                          std::chrono::nanoseconds timeout) override;
  ObjectSharePtr make_pending(std::shared_ptr<ObjectSource> source) override;
  void fulfil(const ObjectId& object, Result<Bytes> value,
              std::vector<std::shared_ptr<const void>> kept) override;
  Result<void> hold_result(const ObjectAddress& object, std::span<const std::byte> bytes) override;
  bool is_pending(const ObjectId& object) const override;
  void cancel(const ObjectSharePtr& share) override;
  ObjectSharePtr adopt(const ObjectOnTheWire& wire) override;
  std::uint64_t hold(ObjectSharePtr share) override;
  const std::string& endpoint() const override { return endpoint_; }
  const std::string& locality() const override { return options_.locality; }
  void when_registered(std::function<void()> then) override;
  bool is_registering() const override { return registering_ > 0; }
  ObjectCounts counts() const override;
  std::vector<ObjectInfo> list(std::uint64_t after, std::size_t limit) const override;
  void stop() override;

  void deliver(IncomingCall call) override;

 private:
  using Number = std::uint64_t;
  using Lock = std::unique_lock<std::mutex>;
  using Kept = std::vector<std::shared_ptr<const void>>;

  struct Waiter {
    std::shared_ptr<std::atomic<bool>> is_over;
    std::function<void()> run;
  };
  struct Owned {
    enum class State { pending, ready, lost };
    State state = State::ready;
    std::uint64_t bytes = 0;
    std::shared_ptr<const Bytes> small;  ///< none: the bytes are where copies_ says
    std::optional<Error> error;          ///< what get returns; of a lost one, too
    Kept kept;
    std::shared_ptr<ObjectSource> source;
    std::vector<Waiter> waiters;
  };
  struct OutNote {
    StoreNote note;
    std::shared_ptr<Borrow> borrow;
    std::uint64_t registration = 0;
  };
  struct Outbox {
    std::string endpoint;
    std::vector<OutNote> notes;
    bool is_sending = false;
  };
  struct Hold {
    std::string endpoint;
    std::uint64_t number = 0;
  };
  /// See the class.
  struct Later {
    std::vector<StoreId> outboxes;
    std::vector<HeldObjects::Freed> freed;
    Kept garbage;
    std::vector<std::function<void()>> run;
  };
  void finish(Later later);

  // Puts, shares, ownership; mutex_ is held where there is a Later.
  void drop(ObjectShare& share) override;
  std::shared_ptr<ObjectShare> share_of(const ObjectAddress& address);
  ObjectAddress own_address(Number number) const;
  void free_owned(Number number, Later& later);
  void wake_waiters(Owned& owned, Later& later);
  void look_for_copies(Number number, const std::string& cause, Later& later);
  /// For the owner: whether it has waited for the object, which is held elsewhere.
  bool take_offer(const StoreOffer& offer);
  /// Forgets an object that this process has offered and nobody wants.
  void drop_offered(const ObjectId& object);
  void cancel_own(const ObjectId& object);

  // Notes and peers.
  void note(const std::string& endpoint, StoreNote::Kind kind, const ObjectId& object, Later& later,
            std::shared_ptr<Borrow> borrow = nullptr, std::uint64_t registration = 0);
  void send_notes(StoreId peer);
  void on_notes_answered(StoreId peer, std::vector<OutNote> sent, const Result<Bytes>& answer);
  void end_registration(std::uint64_t registration, Later& later);
  StoreNotesAnswer on_notes(const StoreNotes& notes);
  bool is_watched(StoreId peer);
  /// The call by which a peer is watched could not be sent: tries again soon.
  void watch_again(const std::string& endpoint);
  void watch_peer(const std::string& endpoint, Later& later);
  void on_peer_gone(StoreId peer, const std::string& cause);

  // What others, or this process itself, ask.
  using LocateDone = std::function<void(Result<Located>)>;
  using OpenDone = std::function<void(Result<OpenReply>)>;
  using AwaitDone = std::function<void(Result<AwaitReply>)>;
  void locate(LocateRequest request, LocateDone done);
  Located locate_copy(const LocateRequest& request, const Owned& owned);
  void open(OpenRequest request, OpenDone done);
  /// Pins an object that is in memory; mutex_ is held.
  SegmentPlace pin_for(const ObjectId& object, const std::string& reader,
                       const HeldObjects::Held& held);
  void await(const AwaitRequest& request, AwaitDone done);
  void add_waiter(Owned& owned, Waiter waiter);
  Result<std::uint16_t> data_port();
  std::optional<DataSource> find_source(const ObjectId& object);

  // Getting.
  /// While it lives, others that are told that this process pulls the object wait for it to begin.
  class Locating {
   public:
    Locating(StoreImpl& store, const ObjectId& object);
    ~Locating();
    Locating(const Locating&) = delete;
    Locating& operator=(const Locating&) = delete;

   private:
    StoreImpl& store_;
    const ObjectId object_;
  };
  template <class Reply>
  void ask(const std::string& endpoint, StoreMethod method, Bytes request,
           std::function<void(Result<Reply>)> done);
  Result<Located> locate_by(const LocateRequest& request, const ObjectAddress& object,
                            Deadline& deadline);
  Result<std::optional<ObjectData>> open_by(const ObjectSharePtr& share, const std::string& holder,
                                            Deadline& deadline);
  ObjectData local_data(const ObjectId& object, std::uint64_t bytes);
  Result<ObjectData> map_place(const ObjectSharePtr& share, const std::string& holder,
                               const SegmentPlace& place);
  Result<void> begin_pull(const ObjectAddress& object, const Located& located);
  void run_pull(const ObjectAddress& object, const std::vector<std::string>& sources,
                std::span<std::byte> target);
  Result<void> pull_from(const std::string& source, const ObjectId& object,
                         std::span<std::byte> target);
  void end_pull(const ObjectAddress& object, const Result<void>& result);
  void unpin(const ObjectId& object);
  void unpin_at(const std::string& holder, const ObjectId& object);
  Error lost(const ObjectAddress& object, const std::string& cause) const;

  // Room.
  Result<NodeLedger*> ledger();
  Result<std::shared_ptr<Segment>> take_segment(std::size_t bytes);
  Result<std::shared_ptr<Segment>> filled_segment(std::span<const std::byte> bytes);
  /// Spills here or in the process with the least recently used object; false if nothing can be.
  bool spill_least_used(const NodeLedger& node, std::size_t bytes);
  bool make_room_at(const std::string& victim, std::size_t bytes);
  std::uint64_t make_room(std::uint64_t bytes);
  bool spill_one();
  Result<std::shared_ptr<UniqueFd>> write_file(std::span<const std::byte> bytes) const;
  void begin_restore(const ObjectId& object);
  void restore(const ObjectId& object);
  void tell_ledger();  ///< mutex_ is held

  const std::shared_ptr<CallHub> hub_;
  const ObjectStoreOptions options_;
  const std::string endpoint_;
  const StoreId self_;

  mutable std::mutex mutex_;
  std::atomic<bool> is_stopping_ = false;
  Number next_number_ = 1;
  ReferenceTable references_;
  CopyTable copies_;
  HeldObjects held_;
  std::unordered_map<Number, Owned> owned_;
  std::unordered_map<ObjectId, std::weak_ptr<ObjectShare>> shares_;
  struct Asked {
    std::size_t threads = 0;
    std::vector<std::function<void()>> waiters;
  };
  std::unordered_map<ObjectId, Asked> locating_;
  std::unordered_map<StoreId, std::string> peers_;  ///< whose ends are watched
  std::unordered_map<StoreId, Outbox> outboxes_;
  std::uint64_t next_hold_ = 1;
  std::unordered_map<std::uint64_t, ObjectSharePtr> holds_;
  std::unordered_map<ObjectId, std::vector<Hold>> to_receive_;  ///< once they are registered
  std::uint64_t last_registration_ = 0;
  std::atomic<std::uint64_t> registering_ = 0;
  std::set<std::uint64_t> registrations_;  ///< not acknowledged
  std::multimap<std::uint64_t, std::function<void()>> when_registered_;
  ObjectCounts counts_;
  std::size_t pulls_ = 0;  ///< under way, each with a thread
  std::condition_variable pulls_ended_;

  /// Lives as long as the last segment, which a view may keep when the store is gone.
  struct Ledger {
    std::mutex mutex;
    std::unique_ptr<NodeLedger> owned;
    std::atomic<NodeLedger*> node = nullptr;
  };
  const std::shared_ptr<Ledger> shared_ledger_ = std::make_shared<Ledger>();
  std::atomic<NodeLedger*>& ledger_ = shared_ledger_->node;  ///< null before the first segment
  SegmentPool pool_;
  std::mutex servers_mutex_;
  std::unique_ptr<SegmentServer> segment_server_;
  std::unique_ptr<DataServer> data_server_;
  SegmentClient segments_;
  TaskThread restoring_, making_room_;
};

}  // namespace troupe
