#include "models/ops/cuda/device_code.hpp"

#include <gtest/gtest.h>

#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

TEST(DeviceCode, of_one_architecture_runs_there_alone) {
  EXPECT_TRUE(code_runs_on("arch=compute_90a,code=sm_90a", 9, 0));
  EXPECT_FALSE(code_runs_on("arch=compute_90a,code=sm_90a", 10, 0));
  EXPECT_FALSE(code_runs_on("arch=compute_90a,code=sm_90a", 8, 0));
}

TEST(DeviceCode, runs_on_later_ones_of_its_generation) {
  EXPECT_TRUE(code_runs_on("arch=compute_80,code=sm_80", 8, 6));
  EXPECT_FALSE(code_runs_on("arch=compute_86,code=sm_86", 8, 0));
  EXPECT_FALSE(code_runs_on("arch=compute_80,code=sm_80", 9, 0));
  EXPECT_TRUE(code_runs_on("arch=compute_100f,code=sm_100f", 10, 3));
}

TEST(DeviceCode, that_drivers_compile_runs_on_all_later_ones) {
  EXPECT_TRUE(code_runs_on("arch=compute_80,code=[sm_80,compute_80]", 12, 0));
  EXPECT_FALSE(code_runs_on("arch=compute_80,code=[sm_80,compute_80]", 7, 5));
}

TEST(DeviceCode, has_hopper_kernels_where_a_code_names_its_own_instructions) {
  EXPECT_TRUE(has_hopper_kernels("arch=compute_90a,code=sm_90a"));
  EXPECT_TRUE(has_hopper_kernels("arch=compute_90a,code=[sm_90a,compute_90a]"));
  EXPECT_FALSE(has_hopper_kernels("arch=compute_90,code=sm_90"));
  EXPECT_FALSE(has_hopper_kernels("arch=compute_90a,code=sm_100a"));
  EXPECT_FALSE(has_hopper_kernels("arch=compute_100,code=[sm_100,compute_100]"));
}

TEST(Multiprocessors, to_take_are_all_but_four_but_at_least_one) {
  EXPECT_EQ(cuda::multiprocessors_to_take(132), 128);
  EXPECT_EQ(cuda::multiprocessors_to_take(5), 1);
  EXPECT_EQ(cuda::multiprocessors_to_take(4), 1);
  EXPECT_EQ(cuda::multiprocessors_to_take(1), 1);  // no device
}

}  // namespace
}  // namespace troupe
