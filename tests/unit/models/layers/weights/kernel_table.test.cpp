#include "models/layers/weights/kernel_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/layers/weights/parameters.hpp"

namespace troupe {
namespace {

TEST(KernelTable, has_a_line_for_each_kernel_with_the_layers_of_its_matrices) {
  KernelTable table;
  for (const std::int64_t layer : {0, 1, 2, 4}) table.add("int8 codes", "o_proj", layer);
  table.add("int8 codes", "lm_head", -1);
  table.add("bf16, as it is rearranged", "q_proj+k_proj+v_proj", 4);
  EXPECT_THAT(table.lines(),
              testing::ElementsAre("bf16, as it is rearranged: q_proj+k_proj+v_proj 4",
                                   "int8 codes: lm_head, o_proj 0-2, 4"));
}

TEST(EncodingFor, holds_the_head_in_8_bits_at_the_least_and_leaves_codes_alone) {
  using enum WeightEncoding;
  EXPECT_EQ(encoding_for(Parameter::down, int4, false), int4);
  EXPECT_EQ(encoding_for(Parameter::head, int4, false), int8);
  EXPECT_EQ(encoding_for(Parameter::embedding, int8, true), int8);
  EXPECT_EQ(encoding_for(Parameter::head, fp8, false), plain);
  EXPECT_EQ(encoding_for(Parameter::down, int8, true), plain);
  EXPECT_EQ(encoding_for(Parameter::router, int8, false), plain);
  EXPECT_EQ(encoding_for(Parameter::expert_down, fp8, false), fp8);
  EXPECT_EQ(encoding_for(Parameter::expert_down, fp8, true), fp8);
  EXPECT_EQ(encoding_for(Parameter::expert_down, int8, false), int8);
  EXPECT_EQ(encoding_for(Parameter::head, w8a8, false), int8);
  EXPECT_EQ(encoding_for(Parameter::down, w8a8, false), w8a8);
  EXPECT_EQ(encoding_for(Parameter::down, w8a8, true), plain_w8a8);
  EXPECT_EQ(encoding_for(Parameter::router, w8a8, true), plain);
  EXPECT_EQ(encoding_for(Parameter::expert_gate_bias, fp8, false), plain);
}

TEST(EncodingFor, holds_the_head_as_asked_and_nothing_else) {
  using enum WeightEncoding;
  EXPECT_EQ(encoding_for(Parameter::head, fp8, false, true), fp8);
  EXPECT_EQ(encoding_for(Parameter::embedding, fp8, true, true), fp8);
  EXPECT_EQ(encoding_for(Parameter::head, fp8, false, false), plain);
  EXPECT_EQ(encoding_for(Parameter::head, int4, false, true), int8);
  for (const WeightEncoding asked : {int8, int4, w8a8}) {
    EXPECT_EQ(encoding_for(Parameter::head, asked, false, false), plain);
    EXPECT_EQ(encoding_for(Parameter::down, asked, false, false), asked);
  }
  EXPECT_EQ(encoding_for(Parameter::router, fp8, false, true), plain);
}

}  // namespace
}  // namespace troupe
