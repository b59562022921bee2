#include "parallel/device/xid_events.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr std::string_view log =
    "6,1230,100,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"
    "4,1234,5000000,-;NVRM: Xid (PCI:0000:19:00): 13, pid=4711, name=launcher, Graphics Exception\n"
    " SUBSYSTEM=pci\n"
    "3,1235,6000000,-;NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', GPU has fallen off the bus\n"
    "3,1236,7000000,c;NVRM: Xid (PCI:0000:19:00): 48, pid=4711, DBE (double bit error) ECC Error\n";

TEST(XidEvents, are_those_of_the_gpu_with_their_times) {
  const auto events = xid_events_in(log, "0000:19:00.0");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].at, std::chrono::seconds(5));
  EXPECT_EQ(events[0].text, "Xid 13: pid=4711, name=launcher, Graphics Exception");
  EXPECT_EQ(events[1].at, std::chrono::seconds(7));
  EXPECT_EQ(events[1].text, "Xid 48: pid=4711, DBE (double bit error) ECC Error");
}

TEST(XidEvents, of_a_log_without_any_are_none) {
  EXPECT_TRUE(xid_events_in("", "0000:19:00.0").empty());
  EXPECT_TRUE(xid_events_in("no record at all", "0000:19:00.0").empty());
  EXPECT_TRUE(xid_events_in(log, "0000:20:00.0").empty());
}

TEST(XidEvents, are_looked_for_in_the_kernels_log_without_waiting) {
  EXPECT_EQ(latest_xid_events("ffff:ff:ff.f", {}), "");
}

}  // namespace
}  // namespace troupe
