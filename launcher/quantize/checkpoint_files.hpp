#pragma once

#include <set>
#include <string>
#include <vector>

#include "launcher/quantize/output_folder.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/quantize/plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The quantization_config of compressed-tensors for matrices quantised as planned, by a
/// QuantizationScheme, but for those of `kept` layers.
nlohmann::ordered_json quantization_config(const QuantizationPlan& plan,
                                           const QuantizationOptions& options,
                                           const std::set<std::int64_t>& kept,
                                           const Checkpoint& checkpoint);

/// The quantization_config of a checkpoint, or one of compressed-tensors that leaves all weights as
/// they are, with fixed scales of an E4M3 KV cache. Errors: those of reading config.json.
Result<nlohmann::ordered_json> with_kv_scales(const Checkpoint& checkpoint);

/// Writes all files but the shards: those of the input but for weights, the index of `shards`
/// (with the names of each one's tensors), and last config.json, with `quantization` if it is not
/// null. Errors: io.
Result<void> write_other_files(const OutputFolder& output, const Checkpoint& checkpoint,
                               const std::vector<std::vector<TensorSpec>>& shards,
                               const nlohmann::ordered_json& quantization);

}  // namespace troupe
