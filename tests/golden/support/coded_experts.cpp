#include "tests/golden/support/coded_experts.hpp"

#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/families/family.hpp"
#include "models/layers/weights/parameters.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe::golden {
namespace {

const CodesCase formats[] = {
    {"w4a16 by 32", {.coding = WeightCoding::packed_int4, .group_columns = 32}, DType::bf16},
    {"w4a16 by 128", {.coding = WeightCoding::packed_int4, .group_columns = 128}, DType::bf16},
    {"w4a16 by 128, asymmetric",
     {.coding = WeightCoding::packed_int4, .group_columns = 128, .has_zero_points = true},
     DType::bf16},
    {"mxfp4", {.coding = WeightCoding::mxfp4_packed, .group_columns = 32}, DType::u8},
    {"fp8 by blocks", {.coding = WeightCoding::fp8, .group_rows = 128, .group_columns = 128}},
    {"fp8 by row", {.coding = WeightCoding::fp8}, DType::bf16},
    {"int8 by row", {.coding = WeightCoding::int8}},
    {"nvfp4", {.coding = WeightCoding::nvfp4_packed, .group_columns = 16}, DType::f8_e4m3},
    {"nvfp4 of ModelOpt", {.coding = WeightCoding::nvfp4, .group_columns = 16}, DType::f8_e4m3},
    {"int8 by 128", {.coding = WeightCoding::packed_int8, .group_columns = 128}, DType::bf16},
};

/// compressed-tensors' name of a coding.
const char* format_of(WeightCoding coding) {
  switch (coding) {
    case WeightCoding::fp8:
      return "float-quantized";
    case WeightCoding::int8:
      return "int-quantized";
    case WeightCoding::mxfp4_packed:
      return "mxfp4-pack-quantized";
    case WeightCoding::nvfp4_packed:
      return "nvfp4-pack-quantized";
    default:
      return "pack-quantized";
  }
}

/// What config.json says of a scheme.
nlohmann::json quantization_config(const WeightScheme& scheme) {
  if (scheme.coding == WeightCoding::fp8 && scheme.group_rows > 1) {
    return {{"quant_method", "fp8"},
            {"weight_block_size", {scheme.group_rows, scheme.group_columns}}};
  }
  if (scheme.coding == WeightCoding::nvfp4) {
    return {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  }
  const CodeKind kind = weight_format(scheme.coding).kind;
  const bool is_float = kind == CodeKind::e4m3 || kind == CodeKind::e2m1;
  const char* const of_groups =
      scheme.coding == WeightCoding::nvfp4_packed ? "tensor_group" : "group";
  nlohmann::json weights = {{"num_bits", is_packed(kind) ? 4 : 8},
                            {"type", is_float ? "float" : "int"},
                            {"symmetric", !scheme.has_zero_points},
                            {"strategy", scheme.group_columns > 0 ? of_groups : "channel"}};
  if (scheme.group_columns > 0) weights["group_size"] = scheme.group_columns;
  return {{"quant_method", "compressed-tensors"},
          {"format", format_of(scheme.coding)},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

RawTensor raw_tensor(std::string_view type, const Tensor& tensor) {
  RawTensor raw{std::string(type), {}, {}};
  for (int i = 0; i < tensor.shape().rank(); ++i) raw.shape.push_back(tensor[i]);
  raw.bytes.assign(static_cast<const char*>(tensor.data()), tensor.bytes());
  return raw;
}

std::string_view type_of_scales(DType dtype) {
  if (dtype == DType::f8_e4m3) return "F8_E4M3";
  return dtype == DType::f32 ? "F32" : dtype == DType::bf16 ? "BF16" : "U8";
}

/// Makes numbers about as large as those of a model's weights.
void shrink_scales(const Tensor& scales, CodeKind kind) {
  const float factor = kind == CodeKind::int4 ? 0.4F : 0.02F;
  for (std::int64_t i = 0; i < scales.elements(); ++i) {
    if (scales.dtype() == DType::f32) scales.as<float>()[i] *= factor;
    if (scales.dtype() == DType::bf16) {
      BFloat16& scale = scales.as<BFloat16>()[i];
      scale = to_bfloat16(to_float(scale) * factor);
    }
  }
}

/// Puts a matrix of random codes in the place of numbers.
void put_codes(std::map<std::string, RawTensor>& tensors, const std::string& name,
               const CodesCase& codes, std::int64_t rows, std::int64_t columns,
               std::mt19937& engine) {
  const RandomCodes made = random_codes(engine, codes, rows, columns);
  const WeightFormat& format = weight_format(codes.scheme.coding);
  shrink_scales(made.scales, format.kind);
  tensors.erase(name);
  tensors[name + std::string(format.codes)] = raw_tensor(format.file_type, made.codes);
  tensors[name + std::string(format.scales[0])] =
      raw_tensor(type_of_scales(codes.scales), made.scales);
  if (!format.tensor_scale.empty()) {
    const float scale = std::uniform_real_distribution<float>(1e-4F, 4e-4F)(engine);
    const float stored = format.divides_by_tensor_scale ? 1.0F / scale : scale;
    RawTensor one{"F32", {}, std::string(sizeof stored, '\0')};
    if (format.divides_by_tensor_scale) one.shape = {1};  // a list of one, or a number
    std::memcpy(one.bytes.data(), &stored, sizeof stored);
    tensors[name + std::string(format.tensor_scale)] = std::move(one);
  }
  if (!codes.scheme.has_zero_points) return;
  tensors[name + std::string(format.zero_points)] =
      raw_tensor(format.file_type == "I32" ? "I32" : "I8", made.zeros);
}

}  // namespace

std::vector<CodedExpertsCase> coded_experts_cases() {
  std::vector<CodedExpertsCase> cases;
  for (const CodesCase& codes : formats) {
    for (const std::int64_t width : {96, 704}) {
      cases.push_back({fmt::format("{}_width_{}", codes.name(), width), codes, width});
    }
  }
  return cases;
}

Result<void> write_coded_experts(const CodedExpertsCase& experts,
                                 const tests::TemporaryFolder& folder) {
  const auto base = golden_model("qwen3moe-a")->checkpoint;
  auto config = nlohmann::json::parse(file_bytes(base / "config.json"));
  config["moe_intermediate_size"] = experts.width;
  config["quantization_config"] = quantization_config(experts.codes.scheme);
  folder.write("config.json", config.dump());
  TROUPE_TRY(const ModelConfig model, load_model_config(folder.path()));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(base));
  auto tensors = read_all(checkpoint);
  std::mt19937 engine(17);
  for (const WeightUse& use : weights_in_use(model, weight_rules_of(model))) {
    if (!is_expert(use.rule->parameter)) continue;
    const Shape shape = stored_shape(*use.rule, model);
    put_codes(tensors, checkpoint_name(*use.rule, use.layer, use.expert), experts.codes, shape[0],
              shape[1], engine);
  }
  folder.write("model.safetensors", safetensors_bytes(tensors));
  return {};
}

Result<std::vector<float>> logits_of_prompts(Runner& runner, int whole, int parts) {
  std::vector<float> logits;
  for (const auto& [tokens, chunk] : {std::pair(whole, 512), std::pair(parts, 3)}) {
    Sequence sequence;
    for (int i = 0; i < tokens; ++i) sequence.tokens.push_back(1 + i * 7 % 127);
    TROUPE_CHECK(runner.feed(sequence, chunk, logits));
    runner.release(sequence);
  }
  return logits;
}

}  // namespace troupe::golden
