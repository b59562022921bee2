#include "launcher/bench/ops/op_figures.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/bench/ops/model_ops.hpp"
#include "models/ops/device/device.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

OpsFigures two_ops() {
  OpsFigures figures{.model = "configs/bench/qwen3-8b",
                     .device = "one GPU",
                     .dtype = "bf16",
                     .context = 512,
                     .max_decode_rows = 256,
                     .ceilings = {.operations_per_second = 100, .bytes_per_second = 10},
                     .rows = {256, 4096}};
  figures.ops.push_back({.op = "qkv",
                         .shape = "4096 -> 6144",
                         .rows = 256,
                         .count = 3,
                         .seconds = 2,
                         .bytes = 10,
                         .operations = 50});
  figures.ops.push_back({.op = "head",
                         .shape = "4096 -> 151936",
                         .rows = 256,
                         .count = 1,
                         .seconds = 8,
                         .bytes = 10,
                         .operations = 400});
  figures.ops.push_back({.op = "qkv",
                         .shape = "4096 -> 6144",
                         .rows = 4096,
                         .count = 3,
                         .seconds = 20,
                         .bytes = 40,
                         .operations = 1000});
  return figures;
}

TEST(OpFigures, take_at_least_what_their_bytes_or_their_operations_take) {
  const OpsFigures figures = two_ops();
  EXPECT_DOUBLE_EQ(figures.ops[0].min_seconds(figures.ceilings), 1.0);
  EXPECT_DOUBLE_EQ(figures.ops[1].min_seconds(figures.ceilings), 4.0);
}

TEST(OpFigures, add_up_to_a_pass_as_often_as_it_does_them) {
  const PassFigures pass = pass_of(two_ops(), 256);
  EXPECT_DOUBLE_EQ(pass.roofline_seconds, 3 * 1.0 + 4.0);
  EXPECT_DOUBLE_EQ(pass.seconds, 3 * 2.0 + 8.0);
  EXPECT_DOUBLE_EQ(pass.bytes, 40);
  EXPECT_DOUBLE_EQ(pass.operations, 550);
}

TEST(OpFigures, are_a_table_that_fits_a_terminal) {
  const std::string table = to_table(two_ops());
  EXPECT_THAT(table, HasSubstr("decode 256 at context 512"));
  EXPECT_THAT(table, HasSubstr("prefill 4096 in parts of 512"));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 79U) << line;
}

TEST(OpFigures, tell_what_a_shared_prefix_saves) {
  OpsFigures figures = two_ops();
  figures.prefix = 400;
  EXPECT_THAT(to_table(figures), Not(HasSubstr("shared prefix"))) << "nothing shares it";
  figures.ops[0].cascade_seconds = 0.5;
  EXPECT_DOUBLE_EQ(pass_of(figures, 256).cascade_seconds, 3 * 0.5 + 8.0);
  EXPECT_DOUBLE_EQ(pass_of(figures, 4096).cascade_seconds, pass_of(figures, 4096).seconds);
  const std::string table = to_table(figures);
  EXPECT_THAT(table, HasSubstr("a shared prefix of 400: attention 500000.0 us, 4.00 x as fast"));
  EXPECT_THAT(table, HasSubstr("the step's ops 9500.000 ms, 1.47 x as fast"));
}

TEST(OpFigures, name_each_pass_in_json) {
  const auto json = to_json(two_ops());
  EXPECT_EQ(json["ops"].size(), 3U);
  EXPECT_EQ(json["passes"][0]["kind"], "decode");
  EXPECT_EQ(json["passes"][1]["kind"], "prefill");
  EXPECT_DOUBLE_EQ(json["ops"][0]["of_ceiling"], 0.5);
}

ModelConfig small_model() {
  ModelConfig model;
  model.architecture = "Qwen3ForCausalLM";
  model.hidden_size = 64;
  model.layers = 4;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.intermediate_size = 96;
  model.vocab_size = 300;
  return model;
}

std::vector<std::string> names_of(const OpsFigures& figures) {
  std::vector<std::string> names;
  for (const OpFigure& op : figures.ops) names.push_back(op.op);
  return names;
}

OpsFigures measured(const ModelConfig& model) {
  OpsFigures figures{.context = 40, .max_decode_rows = 8, .rows = {1, 8, 50}};
  auto ops = make_ops({});
  EXPECT_TRUE(ops.ok()) << ops.error().message;
  if (!ops.ok()) return figures;
  ModelOps bench(**ops, model, {.seconds = 0.001});
  const auto done = bench.measure(figures);
  EXPECT_TRUE(done.ok()) << done.error().message;
  for (const OpFigure& op : figures.ops) {
    EXPECT_GT(op.seconds, 0) << op.op;
    EXPECT_GT(op.bytes, 0) << op.op;
    EXPECT_GT(op.count, 0) << op.op;
  }
  return figures;
}

TEST(ModelOps, time_what_a_dense_model_does) {
  const OpsFigures figures = measured(small_model());
  EXPECT_THAT(names_of(figures),
              IsSupersetOf({"embed", "add_rms_norm", "silu_mul", "rope and store", "attention",
                            "qkv", "attention out", "gate and up", "down", "head"}));
  EXPECT_THAT(names_of(figures), Not(testing::Contains("router")));
  for (const OpFigure& op : figures.ops) {
    if (op.op == "qkv") {
      EXPECT_EQ(op.shape, "64 -> 128");
    }
    if (op.op == "head") {
      EXPECT_EQ(op.count, 1);
    }
  }
  EXPECT_TRUE(figures.ceilings.known());
}

TEST(ModelOps, time_experts_where_layers_have_them) {
  ModelConfig model = small_model();
  model.moe = MoeConfig{.experts = 8, .top_k = 2, .intermediate_size = 32, .dense_layers = {0}};
  const OpsFigures figures = measured(model);
  EXPECT_THAT(names_of(figures), IsSupersetOf({"router", "experts", "experts' gates",
                                               "experts' down", "combine", "gate and up"}));
  for (const OpFigure& op : figures.ops) {
    if (op.op == "combine") {
      EXPECT_EQ(op.count, 3) << "one layer has no experts";
    }
  }
}

}  // namespace
}  // namespace troupe
