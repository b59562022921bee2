#include "launcher/cli/quantize_options.hpp"

#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

Parsed<QuantizeOptions> parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"-m", "a", "-o", "b"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return parse_for<QuantizeArguments>("quantize", all);
}

TEST(QuantizeOptions, name_every_scheme_as_they_were_given) {
  const std::vector<std::pair<std::string, CompressionScheme>> schemes = {
      {"fp8", QuantizationScheme::fp8},         {"int8", QuantizationScheme::int8},
      {"w4a16", QuantizationScheme::w4a16},     {"mxfp4", QuantizationScheme::mxfp4},
      {"nvfp4", QuantizationScheme::nvfp4},     {"sparse-2:4", SparsityStructure::two_of_four},
      {"sparse-rows", SparsityStructure::rows}, {"kv-fp8", KvCacheScheme::fp8}};
  for (const auto& [name, scheme] : schemes) {
    const QuantizationOptions chosen =
        options_of(parse({"--scheme", name, "--calibrate", "text.txt"})).quantization;
    EXPECT_EQ(chosen.scheme, scheme) << name;
    EXPECT_EQ(to_string(chosen.scheme), name);
    EXPECT_EQ(chosen.method,
              is_pruning(scheme) ? QuantizationMethod::magnitude : QuantizationMethod::rtn);
  }
}

TEST(QuantizeOptions, refuse_what_does_not_go_together_with_the_way_out) {
  expect_refused(parse,
                 {{{}, "Give --scheme fp8, int8, w4a16, mxfp4 or nvfp4, sparse-2:4 or sparse-rows"},
                  {{"--scheme", "fp4"}, "or kv-fp8, found fp4"},
                  {{"--scheme", "fp8", "--method", "gptq"}, "is for int8, w4a16, mxfp4 and nvfp4"},
                  {{"--scheme", "mxfp4", "--method", "awq"}, "is for w4a16 and nvfp4"},
                  {{"--scheme", "nvfp4", "--method", "smoothquant"}, "is for int8"},
                  {{"--scheme", "nvfp4", "--method", "awq"}, "give a text with --calibrate FILE"},
                  {{"--scheme", "fp8", "--method", "wanda"}, "is for sparse-2:4 and sparse-rows"},
                  {{"--scheme", "sparse-rows", "--method", "rtn"}, "goes by --method magnitude"},
                  {{"--scheme", "sparse-2:4", "--keep", "auto"}, "leave layers out with --ignore"},
                  {{"--scheme", "kv-fp8"}, "give a text with --calibrate FILE"},
                  {{"--scheme", "kv-fp8", "--calibrate", "t", "--method", "gptq"},
                   "--method is about weights"}});
}

TEST(QuantizeOptions, help_fits_a_terminal) { expect_help_fits_a_terminal(parse); }

}  // namespace
}  // namespace troupe
