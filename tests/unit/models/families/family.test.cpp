#include "models/families/family.hpp"

#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(Families, are_found_by_the_name_that_their_configs_have) {
  std::set<std::string_view> names, types;
  for (const Family* family : families()) {
    ModelConfig config;
    config.architecture = family->config.architecture;
    EXPECT_EQ(&family_of(config), family) << config.architecture;
    EXPECT_TRUE(names.insert(family->config.architecture).second) << config.architecture;
    EXPECT_TRUE(types.insert(family->config.model_type).second) << config.architecture;
  }
}

TEST(Families, have_the_weights_that_every_decoder_has) {
  for (const Family* family : families()) {
    ModelConfig config;
    config.architecture = family->config.architecture;
    std::set<Parameter> found;
    for (const WeightRule& rule : weight_rules_of(config)) found.insert(rule.parameter);
    for (const Parameter parameter :
         {Parameter::embedding, Parameter::output, Parameter::final_norm, Parameter::head}) {
      EXPECT_TRUE(found.contains(parameter))
          << config.architecture << ", parameter " << static_cast<int>(parameter);
    }
  }
}

TEST(Families, do_not_stand_in_for_an_architecture_that_none_has) {
  ModelConfig config;
  config.architecture = "FooBarForCausalLM";
  EXPECT_DEATH(family_of(config), "the architecture of a model is a family's");
}

TEST(Families, are_all_in_the_documentation) {
  const std::string text = golden::file_bytes(test::source_path("docs/models.md"));
  for (const Family* family : families()) {
    EXPECT_THAT(text, HasSubstr(fmt::format("`{}`", family->config.architecture)));
  }
}

}  // namespace
}  // namespace troupe
