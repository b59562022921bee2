#include "actors/worker/startup/nccl_environment.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace troupe::test {
namespace {

class NcclEnvironment : public testing::Test {
 protected:
  NcclEnvironment() { clear(); }
  ~NcclEnvironment() override { clear(); }

  static void clear() {
    for (const char* name : {"NCCL_SOCKET_IFNAME", "NCCL_HOSTID"}) ::unsetenv(name);
  }
  static std::string value(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  }
};

TEST_F(NcclEnvironment, names_the_interface_and_the_node_of_a_job_over_several) {
  set_nccl_environment({"h1", "127.0.0.1"});
  EXPECT_EQ(value("NCCL_SOCKET_IFNAME"), "=lo");
  EXPECT_EQ(value("NCCL_HOSTID"), "h1");
}

TEST_F(NcclEnvironment, keeps_what_the_user_has_set) {
  ::setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
  set_nccl_environment({"h1", "127.0.0.1"});
  EXPECT_EQ(value("NCCL_SOCKET_IFNAME"), "ib0");
}

TEST_F(NcclEnvironment, is_left_alone_on_one_machine) {
  set_nccl_environment({"node0", ""});
  EXPECT_EQ(value("NCCL_SOCKET_IFNAME"), "");
  EXPECT_EQ(value("NCCL_HOSTID"), "");
}

}  // namespace
}  // namespace troupe::test
