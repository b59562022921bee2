#include "launcher/cli/eval_options.hpp"

#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

Parsed<EvalOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<EvalArguments>("eval", arguments);
}

TEST(EvalOptions, compare_layers_of_two_models) {
  const EvalOptions options =
      options_of(parse({"-m", "a", "--against", "b", "--text", "t.txt", "--layers", "4"}));
  EXPECT_EQ(options.layer_windows, 4);
  ASSERT_TRUE(options.against.has_value());
  const EvalOptions same = options_of(parse({"-m", "a", "--against-set", "model.dtype=float32",
                                             "-t", "t.txt", "--max-perplexity-increase", "1%"}));
  EXPECT_TRUE(same.against.has_value());
  EXPECT_EQ(same.max_increase, 0.01);
}

TEST(EvalOptions, refuse_mistakes_with_the_way_out) {
  expect_refused(parse,
                 {{{"-m", "a"}, "Give --text FILE or --tasks FILE"},
                  {{"-m", "a", "-t", "t.txt", "--layers", "4"},
                   "--layers compares two models: give --against"},
                  {{"-m", "a", "--against", "b", "--tasks", "t.jsonl", "--layers", "4"},
                   "give --against and --text"},
                  {{"-m", "a", "-t", "t.txt", "--max-perplexity-increase", "1%"},
                   "--max-perplexity-increase compares two models: give --against"},
                  {{"-m", "a", "-t", "t.txt", "--length", "8", "--stride", "9"}, "--stride 9"}});
}

TEST(EvalOptions, help_fits_a_terminal) { expect_help_fits_a_terminal(parse); }

}  // namespace
}  // namespace troupe
