// Models whose weights are stored in low precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/ops/weight_format.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr std::int64_t block = 128;

/// The code of the nearest number of e4m3.
std::uint8_t nearest_e4m3(float number) {
  static const auto magnitudes = [] {
    std::array<float, 127> all{};
    for (std::size_t code = 0; code < all.size(); ++code) {
      all[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
    }
    return all;
  }();
  const float magnitude = std::abs(number);
  auto at = std::ranges::lower_bound(magnitudes, magnitude);
  if (at == magnitudes.end()) --at;
  if (at != magnitudes.begin() && magnitude - *(at - 1) < *at - magnitude) --at;
  const auto code = static_cast<std::uint8_t>(at - magnitudes.begin());
  return number < 0 ? code | 0x80 : code;
}

/// A matrix as fp8 codes with scales, and as the numbers that these are, in f32 and rounded to
/// bf16.
struct Encoded {
  RawTensor codes, scales, numbers, rounded;
};

Encoded encode(const RawTensor& matrix) {
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const std::int64_t across = (columns + block - 1) / block, down = (rows + block - 1) / block;
  const auto* from = reinterpret_cast<const BFloat16*>(matrix.bytes.data());
  std::vector<float> scales(static_cast<std::size_t>(across * down), 0.0F);
  const auto scale_of = [&](std::int64_t i) -> float& {
    return scales[static_cast<std::size_t>(i / columns / block * across + i % columns / block)];
  };
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    scale_of(i) = std::max(scale_of(i), std::abs(to_float(from[i])) / 448.0F);
  }
  std::string codes;
  std::vector<float> numbers;
  std::vector<BFloat16> rounded;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::uint8_t code = nearest_e4m3(to_float(from[i]) / scale_of(i));
    codes.push_back(static_cast<char>(code));
    numbers.push_back(e4m3_to_float(code) * scale_of(i));
    rounded.push_back(to_bfloat16(numbers.back()));
  }
  const auto bytes_of = [](const auto& values) {
    std::string bytes(values.size() * sizeof values[0], '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  return {{"F8_E4M3", matrix.shape, codes},
          {"F32", {down, across}, bytes_of(scales)},
          {"F32", matrix.shape, bytes_of(numbers)},
          {"BF16", matrix.shape, bytes_of(rounded)}};
}

/// The embedding, the head and the router stay as they are.
bool is_encoded(const std::string& name, const RawTensor& tensor) {
  return tensor.shape.size() == 2 && name.find("_proj") != std::string::npos;
}

Result<std::vector<float>> logits_of(const std::filesystem::path& folder, DType precision) {
  TROUPE_TRY(const auto model, load(folder, precision));
  Sequence sequence;
  for (int i = 0; i < 40; ++i) sequence.tokens.push_back(1 + i * 7 % 400);
  std::vector<float> logits;
  TROUPE_CHECK(model.runner->feed(sequence, 512, logits));
  return logits;
}

// CPUs multiply with codes, whose numbers are not rounded.
TEST(WeightFormats, of_fp8_in_blocks_compute_what_their_numbers_do) {
  REQUIRE_OK(const auto ops, make_golden_ops(DType::f32));
  const bool is_cpu = !ops->memory().available().has_value();
  for (const std::string name : {"llama-a", "deepseek3-a", "mixtral-a"}) {
    SCOPED_TRACE(name);
    if (is_cpu && name == "deepseek3-a") continue;  // decodes and rounds what it rearranges
    const auto golden = golden_model(name);
    ASSERT_TRUE(golden.has_value());
    REQUIRE_OK(const auto checkpoint, Checkpoint::open(golden->checkpoint));
    std::map<std::string, RawTensor> encoded = read_all(checkpoint), decoded = encoded;
    for (const auto& [tensor, raw] : read_all(checkpoint)) {
      if (!is_encoded(tensor, raw)) continue;
      Encoded both = encode(raw);
      encoded[tensor] = std::move(both.codes);
      encoded[tensor + "_scale_inv"] = std::move(both.scales);
      decoded[tensor] = std::move(is_cpu ? both.numbers : both.rounded);
    }
    const TemporaryFolder codes, numbers;
    auto config = nlohmann::json::parse(file_bytes(golden->checkpoint / "config.json"));
    numbers.write("config.json", config.dump());
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    codes.write("config.json", config.dump());
    codes.write("model.safetensors", safetensors_bytes(encoded));
    numbers.write("model.safetensors", safetensors_bytes(decoded));
    for (const DType precision : {DType::f32, DType::bf16}) {
      REQUIRE_OK(const auto found, logits_of(codes.path(), precision));
      if (is_cpu && precision == DType::bf16) continue;  // would round the other's f32
      REQUIRE_OK(const auto expected, logits_of(numbers.path(), precision));
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], is_cpu ? 1e-3 : 0.0) << to_string(precision);
      }
    }
  }
}

}  // namespace
}  // namespace troupe::golden
