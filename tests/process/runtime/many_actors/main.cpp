#include <gtest/gtest.h>

#include "runtime/actor/cluster.hpp"

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
