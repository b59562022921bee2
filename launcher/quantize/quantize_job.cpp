#include "launcher/quantize/quantize_job.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "launcher/quantize/calibration.hpp"
#include "launcher/quantize/checkpoint_files.hpp"
#include "models/families/family.hpp"
#include "models/quantize/code_grid.hpp"
#include "models/quantize/observing_ops.hpp"
#include "models/quantize/scale_folding.hpp"
#include "runtime/base/content_mark.hpp"
#include "runtime/base/format_bytes.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

std::uint64_t bytes_of(const std::vector<TensorSpec>& specs) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += spec.bytes;
  return bytes;
}

nlohmann::json to_json(const MatrixFigures& figures) {
  return {{"name", figures.name},
          {"method", to_string(figures.method)},
          {"inputs", figures.inputs},
          {"relative_error", figures.relative_error}};
}

nlohmann::json figures_of(const QuantizedLayer& made, double divergence) {
  nlohmann::json matrices = nlohmann::json::array();
  for (const MatrixFigures& figures : made.figures) matrices.push_back(to_json(figures));
  return {{"divergence", divergence}, {"matrices", std::move(matrices)}};
}

Result<void> append_all(const QuantizedMatrix& matrix, ShardWriter& writer) {
  for (const std::vector<std::byte>& bytes : encode(matrix)) TROUPE_CHECK(writer.append(bytes));
  return {};
}

/// A tensor's numbers as the checkpoint holds them.
std::vector<std::byte> stored_bytes(const LayerTensor& tensor) {
  const float* const values = tensor.values->as<float>();
  const std::size_t size = size_of(tensor.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.values->elements()) * size);
  for (std::int64_t i = 0; i < tensor.values->elements(); ++i) {
    std::byte* const to = bytes.data() + static_cast<std::size_t>(i) * size;
    const std::uint16_t half =
        tensor.dtype == DType::bf16 ? to_bfloat16(values[i]).bits : float_to_half(values[i]);
    if (size == 2) std::memcpy(to, &half, size);
    if (size == 4) std::memcpy(to, &values[i], size);
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<QuantizeJob>> QuantizeJob::prepare(const QuantizeOptions& options) {
  std::unique_ptr<QuantizeJob> job(new QuantizeJob(options));
  TROUPE_TRY(job->config_, load_model_config(options.model));
  TROUPE_TRY(Checkpoint checkpoint, Checkpoint::open(options.model));
  job->checkpoint_.emplace(std::move(checkpoint));
  std::error_code ignored;
  if (std::filesystem::equivalent(options.model, options.output, ignored)) {
    return fail(ErrorCode::invalid_argument, "--output is the input: give another folder");
  }
  TROUPE_TRY(job->plan_, plan_quantization(job->config_, *job->checkpoint_, options.quantization));
  TROUPE_TRY(job->text_, read_calibration(options, job->config_));
  TROUPE_CHECK(job->sort_tensors());
  TROUPE_TRY(job->ops_, make_cpu_ops({.threads = options.threads,
                                      .dtype = DType::f32,
                                      .isa = CpuIsa::best,
                                      .cores_are_shared = true}));
  return job;
}

Result<void> QuantizeJob::sort_tensors() {
  std::map<std::string, std::int64_t> layers;
  for (const WeightUse& use : weights_in_use(config_, weight_rules_of(config_))) {
    if (is_global(use.rule->parameter)) continue;
    layers.emplace(checkpoint_name(*use.rule, use.layer, use.expert), use.layer);
  }
  std::set<std::string> replaced;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    for (const TensorSpec& spec : added_specs(layer + 1)) replaced.insert(spec.name);
  }
  tensors_.resize(static_cast<std::size_t>(config_.layers) + 1);
  sizes_.resize(tensors_.size());
  for (const std::string& name : checkpoint_->names()) {
    if (replaced.contains(name)) continue;
    const auto found = layers.find(name);
    const auto shard = static_cast<std::size_t>(found == layers.end() ? 0 : found->second + 1);
    tensors_[shard].push_back(name);
    const auto raw = checkpoint_->file_with(name)->raw(name);
    sizes_[shard] += raw.bytes.size();
    bytes_before_ += raw.bytes.size();
  }
  return {};
}

Result<nlohmann::json> QuantizeJob::identity() const {
  const QuantizationOptions& chosen = options_.quantization;
  std::string tokens;
  for (const std::int32_t token : text_.tokens) tokens += fmt::format("{},", token);
  nlohmann::json job = {{"--scheme", to_string(chosen.scheme)},
                        {"--method", to_string(chosen.method)},
                        {"--scales", chosen.scales == ScaleChoice::mse ? "mse" : "absmax"},
                        {"--ignore", options_.ignored},
                        {"--act-order", chosen.gptq.act_order},
                        {"--group-size", chosen.group_columns},
                        {"--sparsity", chosen.sparsity},
                        {"--keep", options_.keeps_layers ? "auto" : "none"},
                        {"--keep-budget", options_.keep_budget},
                        {"--calibrate", is_calibrated() ? to_hex(hash_128(tokens)) : ""},
                        {"--calibrate-length", is_calibrated() ? options_.calibrate_length : 0}};
  TROUPE_TRY(job["config.json of --model"], content_mark(options_.model + "/config.json"));
  std::set<std::filesystem::path> files;
  for (const std::string& name : checkpoint_->names()) {
    files.insert(checkpoint_->file_with(name)->path());
  }
  for (const auto& file : files) {
    TROUPE_TRY(job[file.filename().string() + " of --model"], sampled_mark(file.string()));
  }
  return job;
}

Result<void> QuantizeJob::open_output() {
  TROUPE_TRY(const nlohmann::json job, identity());
  TROUPE_TRY(OutputFolder output, OutputFolder::open(options_.output, job));
  output_.emplace(std::move(output));
  return {};
}

Result<void> QuantizeJob::run() {
  began_ = Clock::now();
  const auto count = std::ssize(tensors_);
  if (is_calibrated()) {
    hidden_ = HostTensor(DType::f32, {std::ssize(text_.tokens), config_.hidden_size});
    after_ = HostTensor(DType::f32, hidden_->shape());
  }
  while (begun_with_ < count && output_->finished(begun_with_) != nullptr) ++begun_with_;
  if (begun_with_ > 0 && !options_.quiet) {
    std::fprintf(stderr, "launcher: goes on: %ld of %ld shards are there\n",
                 static_cast<long>(begun_with_), static_cast<long>(count));
  }
  if (is_calibrated() && begun_with_ > 1 && begun_with_ < count) {
    TROUPE_CHECK(output_->load_hidden(begun_with_ - 1, hidden_));
  }
  for (std::int64_t shard = begun_with_; shard < count; ++shard) {
    TROUPE_TRY(const nlohmann::json figures, make_shard(shard));
    TROUPE_CHECK(output_->record(shard, figures));
    tell(shard, figures);
  }
  TROUPE_CHECK(keep_worst_layers());
  std::vector<std::vector<TensorSpec>> shards;
  for (std::int64_t shard = 0; shard < count; ++shard) {
    shards.push_back(specs_of(shard));
    bytes_after_ += bytes_of(shards.back());
  }
  nlohmann::ordered_json quantization;  // null: a checkpoint as any other
  if (is_about_kv(options_.quantization.scheme)) {
    TROUPE_TRY(quantization, with_kv_scales(*checkpoint_));
  } else if (!is_pruning(options_.quantization.scheme)) {
    quantization = quantization_config(plan_, options_.quantization, kept_, *checkpoint_);
  }
  return write_other_files(*output_, *checkpoint_, shards, quantization);
}

Result<nlohmann::json> QuantizeJob::make_shard(std::int64_t shard) {
  const auto began = Clock::now();
  nlohmann::json figures = nlohmann::json::object();
  if (shard == 0) {
    TROUPE_CHECK(write_shard(0, [](const std::string&, ShardWriter&) { return false; }));
  } else {
    const std::int64_t layer = shard - 1;
    TROUPE_TRY(figures, is_about_kv(options_.quantization.scheme) ? calibrate_kv(layer)
                        : is_calibrated()                         ? calibrate_layer(layer)
                                                                  : round_layer(layer));
    figures["layer"] = layer;
  }
  figures["bytes_before"] = sizes_[static_cast<std::size_t>(shard)];
  figures["bytes_after"] = bytes_of(specs_of(shard));
  figures["seconds"] = std::chrono::duration<double>(Clock::now() - began).count();
  return figures;
}

std::vector<TensorSpec> QuantizeJob::specs_of(std::int64_t shard) const {
  std::vector<TensorSpec> specs;
  for (const std::string& name : tensors_[static_cast<std::size_t>(shard)]) {
    const MatrixPlan* const matrix = plan_.find(name);
    if (matrix != nullptr && has_codes(*matrix)) {
      for (TensorSpec& spec : encoded_specs(
               name, matrix->shape, grid_of(*matrix, options_.quantization), matrix->group)) {
        specs.push_back(std::move(spec));
      }
      continue;
    }
    const auto raw = checkpoint_->file_with(name)->raw(name);
    specs.push_back(
        {name, std::string(raw.type), {raw.extents.begin(), raw.extents.end()}, raw.bytes.size()});
  }
  for (TensorSpec& spec : added_specs(shard)) specs.push_back(std::move(spec));
  return specs;
}

Result<void> QuantizeJob::write_shard(std::int64_t shard, const AppendTensor& append,
                                      std::span<const std::byte> added) {
  const std::vector<TensorSpec> specs = specs_of(shard);
  TROUPE_TRY(ShardWriter writer,
             ShardWriter::create(output_->shard(shard, std::ssize(tensors_)), specs));
  for (const std::string& name : tensors_[static_cast<std::size_t>(shard)]) {
    TROUPE_TRY(const bool is_done, append(name, writer));
    if (!is_done) TROUPE_CHECK(writer.append(checkpoint_->file_with(name)->raw(name).bytes));
  }
  if (!added.empty()) TROUPE_CHECK(writer.append(added));
  return writer.finish();
}

bool QuantizeJob::has_codes(const MatrixPlan& matrix) const {
  return !is_pruning(options_.quantization.scheme) && !kept_.contains(matrix.layer);
}

/// A layer's shard takes from it what has become of its tensors; others are the checkpoint's bytes.
QuantizeJob::AppendTensor QuantizeJob::what_was_made(const QuantizedLayer& made,
                                                     LayerTensors& tensors) const {
  return [&](const std::string& name, ShardWriter& writer) -> Result<bool> {
    if (const auto found = made.matrices.find(name); found != made.matrices.end()) {
      TROUPE_CHECK(append_all(found->second, writer));
      return true;
    }
    const LayerTensor* const tensor = tensors.find(name);
    if (tensor == nullptr || !tensor->is_changed) return false;
    TROUPE_CHECK(writer.append(stored_bytes(*tensor)));
    return true;
  };
}

Result<nlohmann::json> QuantizeJob::prune_layer(std::int64_t layer) {
  TROUPE_TRY(LayerTensors tensors, LayerTensors::load(config_, *checkpoint_, layer));
  InputObserver none({}, threads_);
  TROUPE_TRY(const QuantizedLayer made,
             quantize_layer(config_, plan_, options_.quantization, tensors, none, threads_));
  TROUPE_CHECK(write_shard(layer + 1, what_was_made(made, tensors)));
  return figures_of(made, made.error.value());
}

Result<MatrixRanges> QuantizeJob::ranges_of(std::int64_t layer) const {
  MatrixRanges ranges;
  const auto scheme = std::get<QuantizationScheme>(options_.quantization.scheme);
  if (!has_tensor_scale(scheme)) return ranges;
  for (const std::string& name : tensors_[static_cast<std::size_t>(layer + 1)]) {
    const MatrixPlan* const matrix = plan_.find(name);
    if (matrix == nullptr) continue;
    TROUPE_TRY(const LayerTensor tensor, read_tensor(*checkpoint_, name, matrix->shape));
    ranges.add(*matrix, tensor.values);
  }
  return ranges;
}

Result<nlohmann::json> QuantizeJob::round_layer(std::int64_t layer) {
  if (is_pruning(options_.quantization.scheme)) return prune_layer(layer);
  nlohmann::json matrices = nlohmann::json::array();
  RelativeError sum;
  TROUPE_TRY(const MatrixRanges ranges, ranges_of(layer));
  const auto append = [&](const std::string& name, ShardWriter& writer) -> Result<bool> {
    const MatrixPlan* const matrix = plan_.find(name);
    if (matrix == nullptr) return false;
    TROUPE_TRY(const LayerTensor tensor, read_tensor(*checkpoint_, name, matrix->shape));
    const QuantizedMatrix made = round_to_nearest(
        tensor.values, ranges.grid_of(*matrix, options_.quantization), matrix->group, threads_);
    const RelativeError error = relative_error(tensor.values, made, nullptr, threads_);
    sum.error += error.error;
    sum.whole += error.whole;
    matrices.push_back(to_json({.name = name, .relative_error = error.value()}));
    TROUPE_CHECK(append_all(made, writer));
    return true;
  };
  TROUPE_CHECK(write_shard(layer + 1, append));
  return nlohmann::json{{"divergence", sum.value()}, {"matrices", std::move(matrices)}};
}

Result<nlohmann::json> QuantizeJob::calibrate_layer(std::int64_t layer) {
  std::map<std::string, std::int64_t, std::less<>> columns;
  for (const auto& [name, matrix] : plan_.matrices) {
    if (matrix.layer == layer) columns.emplace(name, matrix.shape[1]);
  }
  InputObserver observer(std::move(columns), threads_);
  checkpoint_->set_substitute([&](std::string_view name) {
    observer.on_read(name);
    return std::optional<Tensor>();
  });
  ObservingOps observing(*ops_, observer);
  auto observed = run_layer(config_, *checkpoint_, observing, layer, text_, hidden_, after_);
  checkpoint_->set_substitute(nullptr);
  TROUPE_CHECK(observed);
  TROUPE_TRY(LayerTensors tensors, LayerTensors::load(config_, *checkpoint_, layer));
  TROUPE_TRY(QuantizedLayer made,
             quantize_layer(config_, plan_, options_.quantization, tensors, observer, threads_));
  TROUPE_TRY(const double divergence, run_quantized(layer, made, tensors, after_));
  TROUPE_CHECK(write_shard(layer + 1, what_was_made(made, tensors)));
  if (layer + 1 < config_.layers) TROUPE_CHECK(output_->save_hidden(layer + 1, hidden_));
  return figures_of(made, divergence);
}

Result<double> QuantizeJob::run_quantized(std::int64_t layer, QuantizedLayer& made,
                                          LayerTensors& tensors, const Tensor& whole) {
  for (LayerTensor& tensor : tensors.all()) {
    const auto found = made.matrices.find(tensor.name);
    if (found != made.matrices.end()) {
      tensor.values = found->second.numbers(threads_);
    } else if (tensor.is_changed) {
      for (float& value : tensor.values->span<float>()) value = rounded_to(value, tensor.dtype);
    }
  }
  checkpoint_->set_substitute([&](std::string_view name) -> std::optional<Tensor> {
    const LayerTensor* const tensor = tensors.find(name);
    if (tensor == nullptr) return std::nullopt;
    return tensor->values->reshaped(tensor->shape);
  });
  const std::span<float> hidden = hidden_->span<float>();  // zeros before the first layer
  const std::span<const float> after = whole.span<float>();
  double error = 0.0, change = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    change += std::pow(static_cast<double>(after[i] - hidden[i]), 2);
  }
  auto ran = run_layer(config_, *checkpoint_, *ops_, layer, text_, hidden_, hidden_);
  checkpoint_->set_substitute(nullptr);
  TROUPE_CHECK(ran);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    error += std::pow(static_cast<double>(hidden[i] - after[i]), 2);
  }
  return RelativeError{error, change}.value();
}

Result<void> QuantizeJob::keep_worst_layers() {
  if (!options_.keeps_layers) return {};
  std::vector<std::int64_t> order;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) order.push_back(layer);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::int64_t layer) {
    return output_->finished(layer + 1)->at("divergence").get<double>();
  });
  double left = options_.keep_budget * static_cast<double>(bytes_before_);
  for (const std::int64_t layer : order) {
    nlohmann::json figures = *output_->finished(layer + 1);
    const auto before = figures.at("bytes_before").get<double>();
    const double more = before - figures.at("bytes_after").get<double>();
    if (more > left) break;
    left -= more;
    kept_.insert(layer);
    if (figures.value("kept", false)) continue;  // by an earlier run
    // A layer's channels are scaled within it, so the input's layer fits between any others.
    TROUPE_CHECK(write_shard(layer + 1, [](const std::string&, ShardWriter&) { return false; }));
    figures["kept"] = true;
    TROUPE_CHECK(output_->record(layer + 1, figures));
  }
  return {};
}

void QuantizeJob::tell(std::int64_t shard, const nlohmann::json& figures) const {
  if (options_.quiet) return;
  const std::int64_t done = shard + 1 - begun_with_;
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  const double left =
      seconds / static_cast<double>(done) * static_cast<double>(std::ssize(tensors_) - shard - 1);
  const std::string what = shard == 0 ? "all but the layers"
                                      : fmt::format("layer {}, divergence {:.4f}", shard - 1,
                                                    figures.at("divergence").get<double>());
  std::fprintf(stderr, "launcher: %ld/%ld shards: %s, %s in %.1f s; %.0f s left\n",
               static_cast<long>(shard + 1), static_cast<long>(std::ssize(tensors_)), what.c_str(),
               format_bytes(figures.at("bytes_after").get<std::uint64_t>()).c_str(),
               figures.at("seconds").get<double>(), left);
}

}  // namespace troupe
