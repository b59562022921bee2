#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/object/borrow.hpp"
#include "runtime/object/copy_table.hpp"
#include "runtime/object/reference_table.hpp"

namespace troupe {
namespace {

constexpr StoreId first_peer = store_bit | 1;

TEST(ReferenceTable, frees_an_object_with_its_last_reference) {
  ReferenceTable table;
  table.add(1);
  EXPECT_TRUE(table.borrow(1, first_peer));
  EXPECT_FALSE(table.drop_local(1));
  EXPECT_EQ(table.borrowers(1), 1);
  EXPECT_TRUE(table.give_back(1, first_peer));
  EXPECT_FALSE(table.has(1));
  EXPECT_FALSE(table.borrow(1, first_peer));
  EXPECT_EQ(table.peers(), 0);
}

TEST(ReferenceTable, counts_registrations_that_overtake_each_other) {
  ReferenceTable table;
  table.add(1);
  (void)table.borrow(1, first_peer);
  (void)table.drop_local(1);
  EXPECT_TRUE(table.borrow(1, first_peer));  // the next one comes before the end of the first
  EXPECT_FALSE(table.give_back(1, first_peer));
  EXPECT_TRUE(table.give_back(1, first_peer));
}

TEST(ReferenceTable, frees_what_only_a_process_that_ended_had) {
  ReferenceTable table;
  for (const std::uint64_t object : {1, 2, 3}) table.add(object);
  (void)table.borrow(1, first_peer);
  (void)table.borrow(2, first_peer);
  (void)table.borrow(2, first_peer + 1);
  for (const std::uint64_t object : {1, 2}) EXPECT_FALSE(table.drop_local(object));
  EXPECT_EQ(table.remove_peer(first_peer), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(table.has(2));
  EXPECT_TRUE(table.remove_peer(first_peer).empty());
}

/// An owner and processes that pass references to one of its objects on, as the store does: each
/// process has one share, which registers and gives back; messages of a link come in order, those
/// of different links in any. Calls keep the sender's reference until they are answered, and are
/// answered once the receiver has registered.
class Model {
 public:
  explicit Model(unsigned seed) : random_(seed) {
    owner_.add(1);
    processes_.resize(5);
  }

  void step() {
    switch (pick(8)) {
      case 0:
        return pass_on();
      case 1:
        return drop_one();
      case 2:
        if (pick(20) == 0) die(1 + pick(4));
        return;
      default:
        (void)deliver_one();
    }
  }
  void drop_all() {
    owner_has_ = false;
    (void)owner_.drop_local(1);
    for (auto& process : processes_) process.refs = 0;
    for (std::size_t i = 0; i < processes_.size(); ++i) look_at_share(i);
  }
  void settle() {
    while (!links_.empty() && deliver_one()) {
    }
  }
  /// Everybody who has a reference finds the object.
  bool is_sound() const {
    if (owner_has_ && !owner_.has(1) && !is_excused_) return false;
    for (std::size_t i = 1; i < processes_.size(); ++i) {
      const auto& share = processes_[i].share;
      if (!share || share->is_unknown) {
        if (share && !is_excused_) return false;  // it was freed too early
        continue;
      }
      if (is_excused_ && !share->borrow.is_acknowledged()) continue;
      if (processes_[i].refs > 0 && !owner_.has(1)) return false;
    }
    return true;
  }
  const ReferenceTable& owner() const { return owner_; }

 private:
  struct Share {
    Borrow borrow;
    bool is_unknown = false;
  };
  struct Process {
    bool is_alive = true;
    int refs = 0;  ///< of the user, and of calls that are not answered
    std::shared_ptr<Share> share;
    std::vector<std::function<void()>> when_registered;
  };
  using Message = std::function<void()>;

  std::size_t pick(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  StoreId id(std::size_t process) const { return store_bit | process; }
  void send(std::size_t from, std::size_t to, int lane, Message message) {
    links_[{from, to, lane}].push_back(std::move(message));
  }
  bool has(std::size_t process) const {
    return process == 0 ? owner_has_ : processes_[process].is_alive && processes_[process].refs > 0;
  }
  bool deliver_one() {
    if (links_.empty()) return false;
    auto found = links_.begin();
    std::advance(found, static_cast<std::ptrdiff_t>(pick(links_.size())));
    const auto [from, to, lane] = found->first;
    Message message = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) links_.erase(found);
    if (to == 0 || processes_[to].is_alive) message();
    return true;
  }
  /// A call with the reference, from a process that has it.
  void pass_on() {
    const std::size_t from = pick(5), to = pick(5);
    if (from == to || !has(from) || (to != 0 && !processes_[to].is_alive)) return;
    keep(from, 1);
    calls_.insert({from, to, ++last_call_});
    send(from, to, 0, [this, from, to, call = last_call_] { receive_call(from, to, call); });
  }
  void keep(std::size_t process, int change) {
    if (process == 0) {
      owner_calls_ += change;
      if (owner_calls_ == 0 && !owner_has_) (void)owner_.drop_local(1);
    } else if (processes_[process].is_alive) {
      processes_[process].refs += change;
      look_at_share(process);
    }
  }
  void receive_call(std::size_t from, std::size_t to, int call) {
    const auto answer = [this, from, to, call] {
      send(to, from, 1, [this, from, to, call] { end_call(from, to, call); });
    };
    if (to == 0) {
      owner_has_ = owner_.take_local(1);
      if (!owner_has_ && !is_excused_) ADD_FAILURE() << "freed while a call brings it back";
      return answer();
    }
    Process& process = processes_[to];
    ++process.refs;
    if (!process.share) {
      process.share = std::make_shared<Share>();
      send(to, 0, 2, [this, to, share = process.share] {
        const bool is_known = owner_.borrow(1, id(to));
        send(0, to, 2, [this, to, share, is_known] {
          share->is_unknown = !is_known;
          if (share->borrow.on_acknowledged(is_known)) give_back(to);
          for (auto& then : std::exchange(processes_[to].when_registered, {})) then();
        });
      });
    }
    if (process.share->borrow.is_acknowledged()) return answer();
    process.when_registered.push_back(answer);
  }
  void end_call(std::size_t from, std::size_t to, int call) {
    if (calls_.erase({from, to, call}) > 0) keep(from, -1);
  }
  void give_back(std::size_t process) {
    send(process, 0, 2, [this, process] { (void)owner_.give_back(1, id(process)); });
  }
  void look_at_share(std::size_t i) {
    Process& process = processes_[i];
    if (!process.share || process.refs > 0) return;
    if (process.share->borrow.on_dropped()) give_back(i);
    process.share = nullptr;
  }
  void drop_one() {
    const std::size_t i = pick(5);
    if (i == 0) {
      if (!owner_has_) return;
      owner_has_ = false;
      if (owner_calls_ == 0) (void)owner_.drop_local(1);
    } else if (processes_[i].is_alive && processes_[i].refs > calls_of(i)) {
      --processes_[i].refs;
      look_at_share(i);
    }
  }
  int calls_of(std::size_t from) const {
    int count = 0;
    for (const auto& [sender, to, call] : calls_) count += sender == from ? 1 : 0;
    return count;
  }
  void die(std::size_t i) {
    Process& process = processes_[i];
    if (!process.is_alive) return;
    process = {};
    process.is_alive = false;
    // What it had sent still comes, and then the end of its connections.
    for (auto& [key, messages] : links_) {
      if (std::get<1>(key) == i) messages.assign(1, [] {});
    }
    send(i, 0, 2, [this, i] { (void)owner_.remove_peer(id(i)); });
    const auto calls = calls_;
    for (const auto& [from, to, call] : calls) {
      if (from == i && calls_.erase({from, to, call}) > 0) is_excused_ = true;
      if (to == i && from != i) {
        send(i, from, 1, [this, from, to, call] { end_call(from, to, call); });
      }
    }
  }

  std::mt19937 random_;
  ReferenceTable owner_;
  bool owner_has_ = true;
  int owner_calls_ = 0;
  bool is_excused_ = false;  ///< a sender has died before its call was answered
  std::vector<Process> processes_;
  std::map<std::tuple<std::size_t, std::size_t, int>, std::deque<Message>> links_;
  std::set<std::tuple<std::size_t, std::size_t, int>> calls_;
  int last_call_ = 0;
};

TEST(References, never_free_too_early_and_always_in_the_end) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Model model(seed);
    for (int i = 0; i < 150; ++i) {
      model.step();
      ASSERT_TRUE(model.is_sound()) << "seed " << seed << ", step " << i;
    }
    model.settle();
    ASSERT_TRUE(model.is_sound()) << "seed " << seed << ", settled";
    while (model.owner().has(1)) {
      model.drop_all();
      model.settle();
      ASSERT_FALSE(model.owner().has(1)) << "seed " << seed << ": it is never freed";
    }
    ASSERT_EQ(model.owner().peers(), 0) << "seed " << seed;
  }
}

TEST(CopyTable, has_one_copy_in_each_locality) {
  CopyTable table;
  table.add(1, {"a", "here", true});
  table.add(1, {"b", "there", false});
  EXPECT_EQ(table.find(1, "there")->endpoint, "b");
  EXPECT_EQ(table.complete_copies(1), std::vector<std::string>{"a"});
  EXPECT_TRUE(table.complete(1, store_at("b")));
  EXPECT_FALSE(table.complete(1, store_at("c")));
  table.add(1, {"c", "there", true});
  EXPECT_EQ(table.count(1), 2);
  EXPECT_EQ(table.peers(), 2);
  EXPECT_EQ(table.remove_peer(store_at("a")), std::vector<std::uint64_t>{1});
  EXPECT_EQ(table.forget(1), std::vector<std::string>{"c"});
  EXPECT_EQ(table.peers(), 0);
}

}  // namespace
}  // namespace troupe
