#include "models/ops/expert_panels.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random_codes.hpp"

namespace troupe {
namespace {

class ExpertPanels : public testing::Test {
 protected:
  /// Experts in the ways of `cases`, one each.
  PanelChoice choose(const std::vector<CodesCase>& cases, std::int64_t n, std::int64_t k) {
    made_.clear();
    std::vector<StoredMatrix> matrices;
    for (const CodesCase& c : cases) {
      made_.push_back(random_codes(engine_, c, n, k));
      matrices.push_back(made_.back().matrix);
    }
    return expert_panels(matrices, WeightEncoding::plain);
  }

  std::mt19937 engine_{11};
  std::vector<RandomCodes> made_;
};

TEST_F(ExpertPanels, are_of_codes_of_4_bits_with_scales_of_bf16) {
  for (const CodesCase& c : codes_cases) {
    const PanelChoice choice = choose({c, c}, 48, 704);
    const bool is_of_4_bits = is_packed(weight_format(c.scheme.coding).kind);
    if (!is_of_4_bits || c.scheme.group_columns == 24) {
      EXPECT_FALSE(choice.panels) << c.what;
      EXPECT_FALSE(choice.obstacle.empty()) << c.what;
      continue;
    }
    ASSERT_TRUE(choice.panels) << c.what << ": " << choice.obstacle;
    EXPECT_EQ(choice.panels->scale_dtype, DType::bf16) << c.what;
    EXPECT_EQ(choice.panels->group_columns, c.scheme.group_columns) << c.what;
    EXPECT_EQ(choice.panels->unit_bytes() % 16, 0) << c.what;
  }
}

TEST_F(ExpertPanels, have_the_scale_of_a_row_in_every_unit) {
  const PanelChoice choice =
      choose({{"packed int4 by row", {.coding = WeightCoding::packed_int4}, DType::bf16}}, 16, 328);
  ASSERT_TRUE(choice.panels) << choice.obstacle;
  EXPECT_EQ(choice.panels->group_columns, 128);
  EXPECT_EQ(choice.panels->scale_bytes(), 0);
}

TEST_F(ExpertPanels, of_nvfp4_have_scales_of_16_columns_and_of_rows) {
  const PanelChoice choice = choose({codes_cases[12], codes_cases[12]}, 48, 704);
  ASSERT_TRUE(choice.panels) << choice.obstacle;
  EXPECT_EQ(describe(*choice.panels), "nvfp4 codes, groups of 16");
  EXPECT_EQ(choice.panels->unit_bytes(), 8 * 128 / 2 + 8 * 8 * 2);
  EXPECT_EQ(choice.panels->scale_bytes(), 48 * 4);
  // A rank's part may begin with any group, not inside one.
  for (const std::int64_t begin : {48, 40}) {
    const StoredMatrix part = columns_of(made_.front().matrix, begin, 352);
    const PanelChoice of_part = expert_panels({&part, 1}, WeightEncoding::plain);
    EXPECT_EQ(of_part.panels.has_value(), begin == 48) << of_part.obstacle;
    EXPECT_EQ(of_part.obstacle,
              begin == 48 ? "" : "its groups of 16 columns from column 40 are not whole 16s");
  }
}

TEST_F(ExpertPanels, are_not_of_experts_in_different_schemes_or_odd_shapes) {
  EXPECT_EQ(choose({codes_cases[4], codes_cases[11]}, 48, 704).obstacle,
            "its experts are stored in different schemes");
  EXPECT_EQ(choose({codes_cases[11]}, 24, 64).obstacle, "its gates are not in multiples of 8");
  EXPECT_EQ(choose({codes_cases[0]}, 16, 64).obstacle,
            "as GPUs multiply experts of 4-bit codes, not int8");
}

}  // namespace
}  // namespace troupe
