#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/object/test_stores.hpp"

namespace troupe::test {
namespace {

/// Mappings and descriptors of objects' memory and files in this process.
std::size_t traces_of_objects(const std::string& spill_folder) {
  std::size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    count += line.find("troupe object") != line.npos ? 1 : 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string to = std::filesystem::read_symlink(entry.path(), error).string();
    count += to.find("troupe object") != to.npos || to.starts_with(spill_folder) ? 1 : 0;
  }
  return count;
}

/// Processes of two nodes that put objects, pass references on, read, drop and die at random, while
/// their links break. An object is there for everybody who has a reference to it, unless its owner
/// has died; in the end nothing is left.
class Chaos {
 public:
  explicit Chaos(unsigned seed) : random_(seed) {
    for (std::size_t i = 0; i < 2; ++i) {
      nodes_[i].name = fmt::format("node{}", i);
      nodes_[i].bytes = std::uint64_t{12} << 20;
      nodes_[i].spill_folder = folder_.path().string();
    }
    for (std::size_t i = 0; i < 5; ++i) processes_.push_back(start(i));
  }

  void step() {
    ++steps_;
    for (auto& process : processes_) {
      for (Ref& ref : process->take()) process->refs.push_back(std::move(ref));
    }
    TestProcess& one = *processes_[pick(processes_.size())];
    switch (pick(14)) {
      case 0:
      case 1:
        return put(one);
      case 2:
      case 3:
      case 4:
        return pass(one);
      case 5:
      case 6:
      case 7:
      case 8:
        return get(one);
      case 9:
      case 10:
        return drop(one.refs);
      case 11:
        return drop(one.views);
      case 12:
        // A process without a link for several tries in a row is taken for dead.
        if (steps_ - last_cut_ < 15) return;
        last_cut_ = steps_;
        return one.transport().cut_all();
      default:
        if (pick(6) == 0) die(pick(processes_.size()));
    }
  }

  /// Everybody drops all; nothing is left anywhere.
  void end() {
    for (auto& process : processes_) process->views.clear();
    const bool is_over = comes_true([&] {
      kept_.clear();
      for (auto& process : processes_) {
        (void)process->take();
        process->refs.clear();
      }
      return std::ranges::all_of(processes_, [](auto& one) { return is_empty(one->store()); });
    });
    for (auto& process : processes_) {
      EXPECT_TRUE(is_over) << describe(process->store().counts());
      process->stop();
    }
    EXPECT_EQ(traces_of_objects(folder_.path().string()), 0);
  }

 private:
  /// A reference on its way: the sender has it until the receiver has registered.
  struct Passing {
    Ref ref;
    const TestProcess* from = nullptr;
    std::shared_ptr<std::atomic<bool>> is_answered = std::make_shared<std::atomic<bool>>(false);
  };

  std::shared_ptr<TestProcess> start(std::size_t i) {
    return TestProcess::start(fmt::format("p{}", i), nodes_[i % 2]);
  }
  std::size_t pick(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }

  void put(TestProcess& one) {
    if (one.refs.size() > 6) return drop(one.refs);
    const std::size_t count = pick(3) == 0 ? 100 : 30'000 + pick(300'000);
    const std::uint32_t value = ++last_value_;
    auto ref = one.put(count, value);
    if (!ref.ok()) {  // views may fill the node
      EXPECT_EQ(ref.error().code, ErrorCode::resource_exhausted) << ref.error().message;
      return;
    }
    values_[ref->id()] = value;
    one.refs.push_back(*std::move(ref));
  }
  void pass(TestProcess& one) {
    TestProcess& to = *processes_[pick(processes_.size())];
    if (one.refs.empty() || &to == &one) return;
    // A call that fails leaves open whether the receiver has the reference, so it is kept till
    // then.
    Passing passing{one.refs[pick(one.refs.size())], &one};
    one.pass(passing.ref, to, [done = passing.is_answered](bool is_ok) { *done = is_ok; });
    std::erase_if(kept_, [](const Passing& other) { return other.is_answered->load(); });
    kept_.push_back(std::move(passing));
  }
  void get(TestProcess& one) {
    if (one.refs.empty()) return;
    const Ref& ref = one.refs[pick(one.refs.size())];
    auto view = one.get(ref);
    if (!view.ok()) {
      const bool may_be_lost = dead_.contains(ref.id().owner) || excused_.contains(ref.id());
      const bool is_full = view.error().code == ErrorCode::resource_exhausted;
      EXPECT_TRUE(is_full || (may_be_lost && view.error().code == ErrorCode::object_lost))
          << view.error().message;
      return;
    }
    EXPECT_EQ(view->get().front(), values_.at(ref.id()));
    EXPECT_EQ(view->get().back(), values_.at(ref.id()));
    if (one.views.size() < 2) one.views.push_back(*std::move(view));
    for (const auto& kept : one.views) EXPECT_EQ(kept.get().front(), kept.get().back());
  }
  template <class All>
  void drop(All& all) {
    if (all.empty()) return;
    std::swap(all[pick(all.size())], all.back());
    all.pop_back();
  }
  void die(std::size_t i) {
    // The owner may hear of its end before the receiver of what it has passed on registers.
    for (const Passing& passing : kept_) {
      if (passing.from == processes_[i].get()) excused_.insert(passing.ref.id());
    }
    std::erase_if(kept_, [&](const Passing& one) { return one.from == processes_[i].get(); });
    dead_.insert(store_at(processes_[i]->store().endpoint()));
    processes_[i]->die();
    processes_[i] = start(i);
  }

  std::mt19937 random_;
  const tests::TemporaryFolder folder_;
  TestNode nodes_[2];
  std::vector<std::shared_ptr<TestProcess>> processes_;
  std::vector<Passing> kept_;
  std::map<ObjectId, std::uint32_t> values_;
  std::set<StoreId> dead_;
  std::set<ObjectId> excused_;
  std::uint32_t last_value_ = 0;
  int steps_ = 0, last_cut_ = 0;
};

TEST(StoreProperties, no_live_reference_is_lost_and_nothing_is_left) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Chaos chaos(seed);
    for (int i = 0; i < 150; ++i) {
      chaos.step();
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << i;
    }
    chaos.end();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace troupe::test
