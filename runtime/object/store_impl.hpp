#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/call/future.hpp"
#include "runtime/metrics/metrics_registry.hpp"
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
/// store_notes.cpp: what is told to other stores; store_peers.cpp: their ends; store_serve.cpp:
/// what others ask; store_get.cpp: get; store_pull.cpp: pulls; store_wait.cpp: waits for objects
/// that are not there; store_results.cpp: what is computed elsewhere; store_room.cpp: segments,
/// spilling and restoring; store_list.cpp: what people see.
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
  void when_registered(const Registrations& which, std::function<void()> then) override;
  bool is_registering() const override { return registering_ > 0; }
  void on_node_lost(const std::string& locality, const std::string& how) override;
  ObjectCounts counts() const override;
  ObjectPage list(const ObjectId& after, std::size_t limit) const override;
  void stop() override;

  void deliver(IncomingCall call) override;
  void drop(const CancelToken& cancelled) override;

 private:
  using Number = std::uint64_t;
  using Lock = std::unique_lock<std::mutex>;
  using Kept = std::vector<std::shared_ptr<const void>>;

  using Clock = std::chrono::steady_clock;

  /// Whoever has made a request, this process or another one by a call.
  struct Asker {
    StoreId store = 0;
    std::optional<std::weak_ptr<const void>> link{};  ///< by which another one has asked
    bool is_gone() const { return link && link->expired(); }
  };
  /// Waits until some of these objects are ready, or will not be.
  struct Wait {
    std::vector<Number> numbers;
    Asker asker;
    std::function<void()> run;
    std::size_t missing = 1;  ///< so many of them
  };
  using WaitNumber = std::uint64_t;
  struct Owned {
    enum class State { pending, ready, lost };
    State state = State::ready;
    std::uint64_t bytes = 0;
    std::shared_ptr<const Bytes> small;  ///< none: the bytes are where copies_ says
    std::optional<Error> error;          ///< what get returns; of a lost one, too
    Kept kept;
    std::shared_ptr<ObjectSource> source;
    std::set<WaitNumber> waits;
    std::int64_t created_ms = 0;  ///< since 1970
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
  struct Peer {
    std::string endpoint;
    std::uint64_t last_note = 0;  ///< the sequence number of the latest that has come from it
    std::string server{};         ///< its SegmentServer, once it is known
    std::uint64_t token = 0;
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

  struct Metrics {
    Gauge objects, bytes_in_memory, bytes_spilled;
    Counter pulls, pulled_bytes, spills, restores, lost;
  };

  // Puts, shares, ownership; mutex_ is held where there is a Later.
  void drop(ObjectShare& share) override;
  std::shared_ptr<ObjectShare> share_of(const ObjectAddress& address);
  ObjectAddress own_address(Number number, bool is_in_segment = false) const;
  Owned& add_owned(Number number);
  void free_owned(Number number, Later& later);
  void wake_waits(Owned& owned, Later& later);
  void look_for_copies(Number number, const std::string& cause, Later& later);
  /// For the owner: whether it has waited for the object, which is held elsewhere.
  bool take_offer(const StoreOffer& offer);
  /// Forgets a copy of this process that nobody wants.
  void drop_held(const ObjectId& object);
  void cancel_own(const ObjectId& object);

  // Notes and peers.
  void note(const std::string& endpoint, StoreNote note, Later& later,
            std::shared_ptr<Borrow> borrow = nullptr, std::uint64_t registration = 0);
  void send_notes(StoreId peer);
  void on_notes_answered(StoreId peer, std::vector<OutNote> sent, const Result<Bytes>& answer);
  void end_registration(std::uint64_t registration, Later& later);
  void arm_registering_timer(std::chrono::nanoseconds delay);
  void arm_hold_timer(std::chrono::nanoseconds delay);
  StoreNotesAnswer on_notes(const StoreNotes& notes);
  void on_note(const StoreNote& one, const StoreNotes& notes, Later& later);
  bool is_watched(StoreId peer);
  void watch_peer(const std::string& endpoint, Later& later);
  /// Makes the call that ends with the peer.
  void watch(const std::string& endpoint);
  /// The link to a peer is over: asks it whether it is there on another one, up to `tries` times.
  void look_for_peer(const std::string& endpoint, int tries, std::string cause);
  void on_peer_gone(StoreId peer, const std::string& cause);

  // What others, or this process itself, ask.
  using LocateDone = std::function<void(Result<Located>)>;
  using OpenDone = std::function<void(Result<OpenReply>)>;
  using AwaitDone = std::function<void(Result<AwaitReply>)>;
  /// 0 if it has been answered; else its answer is waited for.
  WaitNumber locate(LocateRequest request, Asker asker, LocateDone done);
  Located locate_copy(const LocateRequest& request, const Owned& owned);
  void forget_copy(const LocateRequest& request, Later& later);
  void open(OpenRequest request, Asker asker, OpenDone done);
  /// Pins an object that is in memory; mutex_ is held.
  SegmentPlace pin_for(const ObjectId& object, StoreId reader, PinNumber pin,
                       const HeldObjects::Held& held);
  std::optional<SegmentServer::Store::Pinned> pin_at_once(const SegmentAsk& ask);
  class ReadyWait;
  WaitNumber await(const AwaitRequest& request, Asker asker, AwaitDone done);
  WaitNumber add_wait(Wait wait);
  /// The wait is over, or nobody waits any more; mutex_ is held.
  std::optional<Wait> take_wait(WaitNumber number);
  void end_wait(WaitNumber number);
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
  /// A request that may be given up: a call, or a wait of this process.
  struct Asked {
    CallTicket call{};
    WaitNumber wait = 0;
  };
  /// Calls a method of another store.
  CallTicket call_store(const std::string& endpoint, StoreMethod method, Bytes request,
                        CallCompletion done, const CallTerms& terms = {}) {
    return hub_->call(address_of_store(endpoint), static_cast<std::uint16_t>(method),
                      std::move(request), std::move(done), terms);
  }
  template <class Reply, class Request>
  Asked ask(const std::string& endpoint, StoreMethod method, const Request& request,
            std::function<void(Result<Reply>)> done) {
    return {.call = call_store(endpoint, method, encode(request),
                               [done = std::move(done)](const Result<Bytes>& answer) {
                                 done(answer.ok() ? decode<Reply>(*answer) : answer.error());
                               })};
  }
  void give_up(const Asked& asked);
  template <class Reply, class Ask, class Late>
  Result<Reply> wait_for_reply(Deadline& deadline, Ask&& ask, const Late& late);
  Result<Located> locate_by(LocateRequest& request, const ObjectAddress& object,
                            Deadline& deadline);
  Result<std::optional<ObjectData>> open_by(const ObjectSharePtr& share, const std::string& holder,
                                            Deadline& deadline);
  void rest(Deadline& deadline);
  Result<ObjectData> look_for_data(const ObjectSharePtr& share, std::chrono::nanoseconds timeout);
  /// What can be had without asking anybody but the owner's SegmentServer.
  Result<std::optional<ObjectData>> get_at_once(const ObjectSharePtr& share, Deadline& deadline,
                                                bool& is_held);
  ObjectData local_data(const ObjectId& object, PinNumber pin, std::uint64_t bytes);
  struct PinAt {
    std::string holder;
    PinNumber number = 0;
  };
  /// Maps an object of which this process has a pin, which goes with the data or if that fails.
  Result<ObjectData> map_place(const ObjectSharePtr& share, const PinAt& pin,
                               const SegmentPlace& place, Deadline& deadline);
  Result<ObjectData> map_given(const ObjectSharePtr& share, const PinAt& pin,
                               const SegmentClient::Given& given);
  Result<void> begin_pull(const ObjectAddress& object, const Located& located);
  void run_pull(const ObjectAddress& object, const std::vector<std::string>& sources,
                std::span<std::byte> target);
  Result<void> pull_in_turn(const std::string& source, const ObjectId& object,
                            std::span<std::byte> target);
  /// False if the source had no turn for it within the timeout.
  Result<bool> pull_from(const std::string& source, const ObjectId& object,
                         std::span<std::byte> target);
  void end_pull(const ObjectAddress& object, const Result<void>& result);
  void unpin(PinNumber pin);
  void unpin_of(StoreId reader, PinNumber pin);
  void unpin_at(const PinAt& pin);
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
  static Metrics make_metrics(MetricsRegistry& registry);
  ObjectInfo info_of(Number number) const;

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
  struct LocatingThreads {
    std::size_t count = 0;
    std::vector<std::function<void()>> waiters;
  };
  std::unordered_map<ObjectId, LocatingThreads> locating_;
  std::unordered_map<WaitNumber, Wait> waits_;
  WaitNumber next_wait_ = 1;
  std::unordered_map<StoreId, Peer> peers_;  ///< whose ends are watched
  std::unordered_map<StoreId, Outbox> outboxes_;
  std::uint64_t last_note_ = 0;
  std::atomic<PinNumber> next_pin_ = 1;
  std::uint64_t next_hold_ = 1;
  std::unordered_map<std::uint64_t, ObjectSharePtr> holds_;
  /// When holds are given up, the earliest first; some of them have been received.
  std::deque<std::pair<Clock::time_point, std::uint64_t>> hold_ends_;
  bool is_hold_timer_armed_ = false;
  std::unordered_map<ObjectId, std::vector<Hold>> to_receive_;  ///< once they are registered
  std::atomic<std::uint64_t> registering_ = 0;
  /// What waits for registrations.
  struct Registering {
    std::function<void()> then;
    std::size_t open = 0;
  };
  /// Not acknowledged, each with the numbers of those in registering_waits_ that wait for it.
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> registrations_;
  std::unordered_map<std::uint64_t, Registering> registering_waits_;
  std::uint64_t next_registering_wait_ = 1;
  /// When they are given up, the earliest first; some of them are over.
  std::deque<std::pair<Clock::time_point, std::uint64_t>> registering_ends_;
  bool is_registering_timer_armed_ = false;
  ObjectCounts counts_;
  const Metrics metrics_;
  std::size_t pulls_ = 0;      ///< under way, each with a thread
  std::stop_source stopping_;  ///< ends what pulls wait for
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
