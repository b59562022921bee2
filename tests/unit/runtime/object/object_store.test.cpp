#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "runtime/call/unix_socket.hpp"
#include "runtime/link/tcp_socket.hpp"
#include "runtime/object/segment_pool.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/object/test_stores.hpp"

namespace troupe::test {
namespace {

constexpr std::size_t large = 1 << 18;  ///< numbers: 1 MiB

std::size_t open_sockets() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string to = std::filesystem::read_symlink(entry.path(), error).string();
    count += to.starts_with("socket:") ? 1 : 0;
  }
  return count;
}

class ObjectStores : public testing::Test {
 protected:
  /// A process that tells a store whatever a test wants.
  StoreNotesAnswer tell(TestProcess& from, const TestProcess& to, std::vector<StoreNote> notes) {
    const StoreNotes message{from.store().endpoint(), std::move(notes)};
    const Promise<Bytes> promise;
    from.hub().call(address_of_store(to.store().endpoint()),
                    static_cast<std::uint16_t>(StoreMethod::notes), encode(message),
                    [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); });
    const auto answer = promise.future().get(limit);
    if (!answer.ok()) throw std::runtime_error(answer.error().message);
    return *decode<StoreNotesAnswer>(*answer);
  }

  TestNode node_;
};

TEST_F(ObjectStores, take_a_note_that_comes_again_for_the_same) {
  using Kind = StoreNote::Kind;
  const auto owner = TestProcess::start("owner", node_), other = TestProcess::start("other", node_);
  auto ref = *owner->put(large, 1);
  const ObjectId id = ref.id();
  const std::vector<StoreNote> borrow{{Kind::borrow, id, 0, 1}};
  EXPECT_TRUE(tell(*other, *owner, borrow).unknown.empty());
  EXPECT_TRUE(tell(*other, *owner, borrow).unknown.empty());
  ref = {};
  EXPECT_EQ(owner->store().counts().owned, 1);
  tell(*other, *owner, {{Kind::give_back, id, 0, 2}});
  EXPECT_TRUE(comes_true([&] { return is_empty(owner->store()); }))
      << describe(owner->store().counts());
  EXPECT_EQ(tell(*other, *owner, {{Kind::borrow, id, 0, 3}}).unknown, std::vector{id});
}

TEST_F(ObjectStores, keep_references_and_views_when_all_links_break) {
  const auto owner = TestProcess::start("owner", node_), other = TestProcess::start("other", node_);
  auto ref = *owner->put(large, 5);
  owner->pass(ref, *other);
  other->refs.push_back(other->take_one());
  EXPECT_TRUE(comes_true([&] { return !other->store().is_registering(); }));
  ref = {};
  for (int i = 0; i < 5; ++i) {
    owner->transport().cut_all();
    other->transport().cut_all();
    auto view = other->get(other->refs[0]);
    ASSERT_TRUE(view.ok()) << view.error().message;
    EXPECT_EQ(view->get()[large - 1], 5);
    other->views.push_back(*std::move(view));
    std::this_thread::sleep_for(100ms);  // for both to see the links' ends
  }
  EXPECT_EQ(owner->store().counts().owned, 1);
  other->refs.clear();
  other->views.clear();
  EXPECT_TRUE(comes_true([&] { return is_empty(owner->store()); }))
      << describe(owner->store().counts());
}

TEST_F(ObjectStores, wait_for_the_owners_of_what_came_with_a_call_alone_and_not_for_ever) {
  const auto silent = TestProcess::start("silent", node_),
             owner = TestProcess::start("owner", node_);
  const auto reader = TestProcess::start(
      "reader", node_, [](ObjectStoreOptions& options) { options.registering_limit = 2s; });
  const auto theirs = *silent->put(10, 1), ref = *owner->put(10, 2);
  silent->be_silent();
  Promise<bool> late, soon;
  silent->pass(theirs, *reader, [late](bool is_answered) { late.complete(is_answered); });
  reader->refs.push_back(reader->take_one());
  owner->pass(ref, *reader, [soon](bool is_answered) { soon.complete(is_answered); });
  EXPECT_TRUE(*soon.future().get(limit));
  EXPECT_FALSE(late.future().ready());
  // A second call with a reference that is not registered yet waits, too.
  Promise<bool> second;
  silent->pass(theirs, *reader, [second](bool is_answered) { second.complete(is_answered); });
  EXPECT_TRUE(*late.future().get(limit));
  EXPECT_TRUE(*second.future().get(limit));
  EXPECT_TRUE(reader->store().is_registering());
}

TEST_F(ObjectStores, keep_nothing_of_readers_that_give_up) {
  const auto owner = TestProcess::start("owner", node_), other = TestProcess::start("other", node_);
  const Ref late(owner->store().make_pending({}));
  owner->pass(late, *other);
  const Ref theirs = other->take_one();
  for (int i = 0; i < 20; ++i) {
    for (const auto& [process, ref] : {std::pair(owner, late), std::pair(other, theirs)}) {
      EXPECT_EQ(process->get(ref, 2ms).error().code, ErrorCode::timed_out);
      const std::vector<Ref> refs{ref};
      const auto waited = wait_for_objects(process->store(), std::span<const Ref>(refs), 1, 2ms);
      EXPECT_EQ(waited.not_ready.size(), 1);
    }
  }
  EXPECT_TRUE(comes_true([&] { return owner->store().counts().waits == 0; }))
      << describe(owner->store().counts());
  const std::vector<Ref> refs{theirs};
  std::thread waits([&] {
    EXPECT_EQ(wait_for_objects(other->store(), std::span<const Ref>(refs), 1, limit).ready.size(),
              1);
  });
  EXPECT_TRUE(comes_true([&] { return owner->store().counts().waits == 1; }));
  owner->store().fulfil(late.id(), Bytes(8), {});
  waits.join();
  EXPECT_EQ(owner->store().counts().waits, 0);
}

TEST_F(ObjectStores, wait_for_objects_of_several_owners_and_those_that_have_ended) {
  const auto first = TestProcess::start("first", node_),
             second = TestProcess::start("second", node_),
             reader = TestProcess::start("reader", node_);
  const auto there = *first->put(10, 1), other = *second->put(large, 2);
  const Ref late(second->store().make_pending({}));
  first->pass(there, *reader);
  reader->refs.push_back(reader->take_one());
  for (const Ref& ref : {other, late}) {
    second->pass(ref, *reader);
    reader->refs.push_back(reader->take_one());
  }
  const std::span<const Ref> refs(reader->refs);
  const auto waited = wait_for_objects(reader->store(), refs, 3, 0ms);
  EXPECT_EQ(waited.ready.size(), 2);
  EXPECT_EQ(waited.not_ready.size(), 1);
  std::thread waits(
      [&] { EXPECT_EQ(wait_for_objects(reader->store(), refs, 3, limit).ready.size(), 3); });
  EXPECT_TRUE(comes_true([&] { return second->store().counts().waits == 1; }));
  second->die();
  waits.join();
  EXPECT_EQ(reader->get(refs[2]).error().code, ErrorCode::object_lost);
}

/// The calls that a process has made to object stores by this method.
double calls_made(const TestProcess& process, StoreMethod method) {
  const MetricLabels labels{{"actor_type", address_of_store("").type},
                            {"method", fmt::format("#{}", static_cast<int>(method))}};
  for (const auto& family : process.hub().observer()->snapshot().metrics) {
    if (family.name != "troupe_calls_made_total") continue;
    for (const auto& series : family.series) {
      if (series.labels == labels) return series.values.at(0);
    }
  }
  return 0;
}

TEST_F(ObjectStores, ask_an_owner_of_many_objects_a_few_times) {
  constexpr std::size_t owners = 3, of_each = 200, count = 500;
  std::vector<std::shared_ptr<TestProcess>> processes;
  const auto reader = TestProcess::start("reader", node_);
  std::vector<std::pair<std::size_t, Ref>> pending;
  for (std::size_t owner = 0; owner < owners; ++owner) {
    processes.push_back(TestProcess::start(fmt::format("owner{}", owner), node_));
    for (std::size_t i = 0; i < of_each; ++i) {
      pending.emplace_back(owner, Ref(processes[owner]->store().make_pending({})));
      processes[owner]->pass(pending.back().second, *reader);
      reader->refs.push_back(reader->take_one());
    }
  }
  std::ranges::shuffle(pending, std::minstd_rand(7));
  std::atomic<bool> is_over = false;
  std::thread waits([&] {
    const auto waited =
        wait_for_objects(reader->store(), std::span<const Ref>(reader->refs), count, limit);
    EXPECT_EQ(waited.ready.size(), count);
    is_over = true;
  });
  for (std::size_t i = 0; i < count; ++i) {
    ObjectStore& owner = processes[pending[i].first]->store();
    ASSERT_TRUE(comes_true([&] { return owner.counts().waits == 1; })) << i;
    EXPECT_FALSE(is_over) << i;
    owner.fulfil(pending[i].second.id(), Bytes(8), {});
  }
  waits.join();
  const double asked = calls_made(*reader, StoreMethod::await);
  EXPECT_GE(asked, owners);
  EXPECT_LT(asked, 100);
  for (const auto& process : processes) {
    EXPECT_TRUE(comes_true([&] { return process->store().counts().waits == 0; }));
  }
}

TEST_F(ObjectStores, wait_for_one_of_several_objects_though_an_owner_is_silent) {
  const auto silent = TestProcess::start("silent", node_),
             owner = TestProcess::start("owner", node_),
             reader = TestProcess::start("reader", node_);
  const Ref late(owner->store().make_pending({}));
  owner->pass(late, *reader);
  reader->refs.push_back(reader->take_one());
  silent->pass(*silent->put(10, 1), *reader);
  reader->refs.push_back(reader->take_one());
  EXPECT_TRUE(comes_true([&] { return !reader->store().is_registering(); }));
  silent->be_silent();
  Promise<std::size_t> ready;
  std::thread waits([&] {
    const auto waited =
        wait_for_objects(reader->store(), std::span<const Ref>(reader->refs), 1, 10s);
    ready.complete(waited.ready.size());
  });
  EXPECT_TRUE(comes_true([&] { return owner->store().counts().waits == 1; }, 5s));
  owner->store().fulfil(late.id(), Bytes(8), {});
  EXPECT_TRUE(ready.future().wait(3s));
  waits.join();
}

/// Somebody in place of a store: it acknowledges notes, and says that its objects are to be had
/// from a SegmentServer.
class LocatingTarget final : public CallTarget {
 public:
  explicit LocatingTarget(std::string server) : server_(std::move(server)) {}
  void deliver(IncomingCall call) override {
    switch (static_cast<StoreMethod>(call.method)) {
      case StoreMethod::notes:
        return call.answer(encode(StoreNotesAnswer{}));
      case StoreMethod::locate: {
        Located located;
        located.kind = Located::Kind::here;
        located.place = {server_, 1, 1, large * 4};
        return call.answer(encode(located));
      }
      default:
        calls_.push_back(std::move(call));
    }
  }

 private:
  const std::string server_;
  std::vector<IncomingCall> calls_;
};

TEST_F(ObjectStores, give_up_in_time_when_a_segment_server_is_silent) {
  const auto owner = TestProcess::start("owner", node_),
             reader = TestProcess::start("reader", node_);
  const std::string server = fmt::format("troupe-test-{}-silent", ::getpid());
  const UniqueFd listener = *listen_at(server);
  const std::string& endpoint = owner->store().endpoint();
  owner->hub().remove_target(store_at(endpoint));
  owner->hub().add_target(store_at(endpoint), std::make_shared<LocatingTarget>(server));
  const Ref first(
      reader->store().adopt({{{store_at(endpoint), 1}, endpoint, "owner", true}, 0, ""}));
  const Ref second(
      reader->store().adopt({{{store_at(endpoint), 2}, endpoint, "owner", true}, 0, ""}));
  const auto seconds_of_get = [&](const Ref& ref, std::chrono::milliseconds timeout) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(reader->get(ref, timeout).error().code, ErrorCode::timed_out);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  EXPECT_LT(seconds_of_get(first, 10ms), 2);
  EXPECT_LT(seconds_of_get(second, 10ms), 2);  // the server is known now
  std::thread patient([&] { EXPECT_LT(seconds_of_get(first, 1s), 4); });
  EXPECT_LT(seconds_of_get(second, 10ms), 2);  // and somebody else waits for it
  patient.join();
}

TEST_F(ObjectStores, pull_once_the_holder_has_a_turn_for_it) {
  TestNode elsewhere{.name = "node1"};
  const auto owner = TestProcess::start("owner", node_);
  const auto reader = TestProcess::start(
      "reader", elsewhere, [](ObjectStoreOptions& options) { options.pull_timeout = 300ms; });
  const auto ref = *owner->put(large, 7);
  owner->pass(ref, *reader);
  reader->refs.push_back(reader->take_one());
  const Promise<Bytes> opened;
  reader->hub().call(address_of_store(owner->store().endpoint()),
                     static_cast<std::uint16_t>(StoreMethod::open),
                     encode(OpenRequest{ref.id(), reader->store().endpoint(), true, 0}),
                     [opened](Result<Bytes> answer) { opened.complete(std::move(answer)); });
  const auto place = *decode<OpenReply>(*opened.future().get(limit));
  TcpAddress address = *look_up(place.data_address, place.data_port, true);
  std::vector<UniqueFd> others;
  for (int i = 0; i < 64; ++i) {
    others.emplace_back(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(others.back().get(), address.get(), address.length), 0);
  }
  Promise<std::uint32_t> got;
  std::thread gets([&] {
    const auto view = reader->get(reader->refs[0]);
    got.complete(view.ok() ? Result<std::uint32_t>(view->get()[0]) : view.error());
  });
  EXPECT_FALSE(got.future().wait(1s));
  others.clear();
  const auto value = got.future().get(limit);
  gets.join();
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(reader->store().counts().pulls, 1);
}

TEST_F(ObjectStores, wait_for_objects_that_are_given_twice) {
  const auto owner = TestProcess::start("owner", node_);
  const Ref first(owner->store().make_pending({})), second(owner->store().make_pending({}));
  const std::vector<Ref> refs{first, second, first};
  std::thread waits([&] {
    const auto waited = wait_for_objects(owner->store(), std::span<const Ref>(refs), 2, limit);
    EXPECT_EQ(waited.ready.size(), 2);
  });
  EXPECT_TRUE(comes_true([&] { return owner->store().counts().waits == 1; }));
  owner->store().fulfil(first.id(), Bytes(8), {});
  waits.join();
}

TEST_F(ObjectStores, tell_all_that_is_ready_when_the_time_is_over) {
  const auto owner = TestProcess::start("owner", node_), other = TestProcess::start("other", node_);
  std::vector<Ref> own;
  for (int i = 0; i < 10; ++i) {
    own.emplace_back(owner->store().make_pending({}));
    owner->pass(own.back(), *other);
    other->refs.push_back(other->take_one());
  }
  std::vector<std::thread> waits;
  for (const auto& [process, refs] : {std::pair(owner, own), std::pair(other, other->refs)}) {
    waits.emplace_back([process, refs] {
      const auto waited = wait_for_objects(process->store(), std::span<const Ref>(refs), 10, 500ms);
      EXPECT_EQ(waited.ready.size(), 3);
    });
  }
  EXPECT_TRUE(comes_true([&] { return owner->store().counts().waits == 2; }));
  for (std::size_t i = 0; i < 3; ++i) owner->store().fulfil(own[i].id(), Bytes(8), {});
  for (auto& one : waits) one.join();
}

TEST_F(ObjectStores, that_stop_leave_nobody_waiting_for_what_is_pending) {
  const auto owner = TestProcess::start("owner", node_);
  const Ref late(owner->store().make_pending({}));
  const std::vector<Ref> refs{late};
  std::thread waits(
      [&] { (void)wait_for_objects(owner->store(), std::span<const Ref>(refs), 1, 3600s); });
  EXPECT_TRUE(comes_true([&] { return owner->store().counts().waits == 1; }));
  owner->store().stop();
  waits.join();  // within the test's limit
}

TEST_F(ObjectStores, that_stop_do_not_wait_for_what_a_pull_waits_for) {
  TestNode elsewhere{.name = "node1"};
  const auto owner = TestProcess::start("owner", node_);
  const auto reader = TestProcess::start("reader", elsewhere, [](ObjectStoreOptions& options) {
    options.pull_timeout = 3600s;
    options.keys.ask = [](const std::string&, auto) {};  // an agent that never answers
  });
  const auto ref = *owner->put(large, 1);
  owner->pass(ref, *reader);
  reader->refs.push_back(reader->take_one());
  std::thread gets([&, share = reader->refs[0].share()] {
    EXPECT_FALSE(reader->store().get_data(share, limit).ok());
  });
  EXPECT_TRUE(comes_true([&] { return reader->store().counts().pulls == 1; }));
  std::this_thread::sleep_for(20ms);  // until it has asked the holder
  reader->store().stop();             // within the test's limit
  gets.join();
}

TEST_F(ObjectStores, close_what_leads_to_processes_that_have_ended) {
  const auto reader = TestProcess::start("reader", node_);
  const auto own = *reader->put(large, 1);  // its ledger and its server are there from now on
  const std::size_t before = open_sockets();
  auto owner = TestProcess::start("owner", node_);
  const auto ref = *owner->put(large, 3);
  owner->pass(ref, *reader);
  reader->refs.push_back(reader->take_one());
  EXPECT_EQ(reader->get(reader->refs[0])->get()[0], 3);
  EXPECT_GT(open_sockets(), before);
  owner->die();
  EXPECT_TRUE(comes_true([&] { return open_sockets() <= before; }))
      << open_sockets() << " sockets, before " << before;
}

TEST_F(ObjectStores, that_stop_leave_nobody_waiting_for_objects_that_are_read_back) {
  const tests::TemporaryFolder folder;
  node_.bytes = std::uint64_t{8} << 20;
  node_.spill_folder = folder.path().string();
  const auto owner = TestProcess::start("owner", node_);
  for (std::uint32_t i = 0; i < 32; ++i) {
    auto ref = owner->put(large, i);
    ASSERT_TRUE(ref.ok()) << ref.error().message;
    owner->refs.push_back(*ref);
  }
  EXPECT_GT(owner->store().counts().spilled_bytes, 0);
  std::vector<std::thread> readers;
  std::atomic<int> begun = 0;
  const auto refs = owner->refs;
  for (const Ref& ref : refs) {
    readers.emplace_back([&, ref] {
      ++begun;
      (void)owner->store().get_data(ref.share(), 3600s);
    });
  }
  EXPECT_TRUE(comes_true([&] { return begun == 32; }));
  owner->store().stop();
  for (auto& reader : readers) reader.join();  // within the test's limit
}

TEST_F(ObjectStores, spill_their_objects_when_the_process_has_all_its_mappings) {
  const tests::TemporaryFolder folder;
  node_.spill_folder = folder.path().string();
  const auto owner = TestProcess::start(
      "owner", node_, [](ObjectStoreOptions& options) { options.max_mappings = 8; });
  for (std::uint32_t i = 0; i < 32; ++i) {
    auto ref = owner->put(large, i);
    ASSERT_TRUE(ref.ok()) << ref.error().message;
    owner->refs.push_back(*ref);
    EXPECT_LE(object_mappings(), 8);
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    const auto view = owner->get(owner->refs[i]);
    ASSERT_TRUE(view.ok()) << view.error().message;
    EXPECT_EQ(view->get()[large - 1], i);
  }
  EXPECT_GE(owner->store().counts().spills, 24);
}

TEST_F(ObjectStores, name_the_remedy_when_the_process_has_all_its_mappings) {
  const auto owner = TestProcess::start(
      "owner", node_, [](ObjectStoreOptions& options) { options.max_mappings = 8; });
  for (std::uint32_t i = 0; i < 8; ++i) owner->refs.push_back(*owner->put(large, i));
  const auto more = owner->put(large, 8);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(more.error().message.find("vm.max_map_count"), std::string::npos)
      << more.error().message;
  // Segments that are free and of another size give theirs up.
  owner->refs.clear();
  for (std::uint32_t i = 0; i < 8; ++i) owner->refs.push_back(*owner->put(2 * large, i));
}

TEST_F(ObjectStores, list_what_they_own_in_pages) {
  const auto owner = TestProcess::start("owner", node_), other = TestProcess::start("other", node_);
  const auto small = *owner->put(10, 1), big = *owner->put(large, 2);
  const Ref late(owner->store().make_pending({}));
  owner->pass(big, *other);
  other->refs.push_back(other->take_one());
  other->views.push_back(*other->get(other->refs[0]));
  const ObjectPage first = owner->store().list({}, 2);
  EXPECT_EQ(first.all_objects, 3);
  ASSERT_EQ(first.objects.size(), 2);
  EXPECT_EQ(first.objects[0].id, small.id());
  EXPECT_EQ(first.objects[0].place, ObjectInfo::Place::inside);
  EXPECT_EQ(first.objects[1].place, ObjectInfo::Place::memory);
  EXPECT_EQ(first.objects[1].bytes, large * 4);
  EXPECT_EQ(first.objects[1].borrowers, 1);
  EXPECT_EQ(first.objects[1].pins, 1);
  EXPECT_EQ(first.objects[1].copies, 1);
  EXPECT_EQ(first.objects[1].owner, "owner");
  EXPECT_GT(first.objects[1].created_ms, 0);
  const ObjectPage second = owner->store().list(first.objects[1].id, 2);
  ASSERT_EQ(second.objects.size(), 1);
  EXPECT_EQ(second.objects[0].place, ObjectInfo::Place::pending);
  EXPECT_EQ(owner->store().list({late.id().owner + 1, 0}, 2).objects.size(), 0);
  EXPECT_EQ(owner->store().list({late.id().owner - 1, 99}, 9).objects.size(), 3);
}

}  // namespace
}  // namespace troupe::test
