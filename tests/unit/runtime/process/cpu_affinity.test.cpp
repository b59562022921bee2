#include "runtime/process/cpu_affinity.hpp"

#include <array>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CpuList, is_numbers_and_ranges) {
  EXPECT_THAT(*parse_cpu_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*parse_cpu_list(""), IsEmpty());
  for (const char* list : {"-1", "3-1", "a", "1-", "1 2", "0-99999999", "1,,2"}) {
    const auto cpus = parse_cpu_list(list);
    ASSERT_FALSE(cpus.ok()) << list;
    EXPECT_THAT(cpus.error().message, HasSubstr(list));
  }
}

cpu_set_t cpus_of_this_thread() {
  cpu_set_t cpus;
  EXPECT_EQ(::sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

class CpuAffinity : public testing::Test {
 protected:
  void TearDown() override { ::sched_setaffinity(0, sizeof before_, &before_); }

  /// Binds to the CPUs of a device with this list.
  std::optional<int> bind(const std::string& list) {
    folder_.write("local_cpulist", list + "\n");
    return bind_to_cpus_near(folder_.path());
  }
  int first_cpu() const {
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before_)) ++cpu;
    return cpu;
  }

  cpu_set_t before_ = cpus_of_this_thread();
  tests::TemporaryFolder folder_;
};

TEST_F(CpuAffinity, of_all_threads_is_the_device_s_now_and_later) {
  if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "this process has one CPU";
  std::promise<void> bound;
  auto earlier = std::async(std::launch::async, [&] {
    bound.get_future().wait();
    return CPU_COUNT(std::array{cpus_of_this_thread()}.data());
  });
  // A CPU that this process does not have does not count.
  EXPECT_EQ(bind(std::to_string(first_cpu()) + ",1023"), 1);
  bound.set_value();
  EXPECT_EQ(earlier.get(), 1);
  const auto later = std::async(std::launch::async, cpus_of_this_thread).get();
  EXPECT_EQ(CPU_COUNT(&later), 1);
  EXPECT_TRUE(CPU_ISSET(first_cpu(), &later));
}

TEST_F(CpuAffinity, says_how_many_cpus_this_thread_may_use) {
  EXPECT_EQ(usable_cpu_count(), CPU_COUNT(&before_));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first_cpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cpu_count(), 1);
}

TEST_F(CpuAffinity, stays_as_it_is_where_the_device_s_is_not_known_or_tells_nothing) {
  EXPECT_EQ(bind_to_cpus_near(folder_.path()), std::nullopt);  // no file
  EXPECT_EQ(bind(""), std::nullopt);
  EXPECT_EQ(bind("0-1023"), std::nullopt);  // every CPU
  EXPECT_EQ(bind("1023"), std::nullopt);    // none of this process
  const auto after = cpus_of_this_thread();
  EXPECT_TRUE(CPU_EQUAL(&after, &before_));
}

}  // namespace
}  // namespace troupe::test
