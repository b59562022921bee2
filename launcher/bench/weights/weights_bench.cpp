#include "launcher/bench/weights/weights_bench.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/bench/common/part_bench.hpp"
#include "launcher/bench/weights/reading.hpp"
#include "models/checkpoint/checkpoint_writer.hpp"
#include "models/families/family.hpp"
#include "models/model/model.hpp"
#include "models/ops/device/device.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t shard_bytes = std::uint64_t{4} << 30;

struct Loading {
  double seconds = 0;       ///< of load_model
  double read_seconds = 0;  ///< part of seconds, from the first weight on; 0 if the device does not
                            ///< report it
  std::uint64_t direct_bytes = 0;
};

struct WeightsFigures {
  std::string folder = {};
  std::string device = {};
  std::uint64_t bytes = 0;  ///< of the weights on the device
  std::size_t files = 0;
  int threads = 0;       ///< for plain reading
  double copy_rate = 0;  ///< bytes per second
  double reading_rate = 0;
  bool cold = false;
  std::vector<Loading> loadings = {};
};

/// Creates `folder` with a checkpoint of the model's shapes.
Result<void> make_checkpoint(const JobPlan& plan, const std::filesystem::path& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return fail(ErrorCode::io, "{}: {}", folder.string(), problem.message());
  TROUPE_TRY(const Checkpoint noise, Checkpoint::dummy(plan.model.dtype));
  std::vector<NamedTensor> tensors;
  std::set<std::string> names;
  for (const WeightUse& use : weights_in_use(plan.model, weight_rules_of(plan.model))) {
    const std::string name = checkpoint_name(*use.rule, use.layer, use.expert);
    if (!names.insert(name).second) continue;  // one tensor holds several parameters
    TROUPE_TRY(const Tensor tensor, noise.weight(name, stored_shape(*use.rule, plan.model)));
    tensors.push_back({name, tensor});
  }
  std::fprintf(stderr, "writing %zu tensors to %s\n", tensors.size(), folder.c_str());
  return write_checkpoint(folder, tensors, shard_bytes);
}

Result<Loading> load(const JobPlan& plan, const std::filesystem::path& folder, Ops& ops,
                     WeightsFigures& figures) {
  const DType dtype = plan.engine.dtype;
  ParallelContext parallel;
  TROUPE_TRY(parallel.mesh, Mesh::create({}));
  const ModelLimits limits{.max_batch_tokens = 16,
                           .max_head_rows = 1,
                           .max_positions = 16,
                           .compute = dtype,
                           .kv_dtype = dtype};
  const auto began = std::chrono::steady_clock::now();
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  TROUPE_TRY(const auto model, load_model(plan.model, checkpoint, ops, parallel, limits));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  figures.bytes = model->weight_bytes();
  return Loading{.seconds = took.count(),
                 .read_seconds = model->loaded().seconds,
                 .direct_bytes = model->loaded().direct_bytes};
}

Result<WeightsFigures> measure(const WeightsBenchOptions& options, const JobPlan& plan) {
  WeightsFigures figures{.folder = plan.engine.model_path, .cold = options.cold};
  const bool on_gpu = plan.engine.device == DeviceKind::cuda;
  figures.device = on_gpu ? "one GPU" : "the CPU";
  if (!options.make_folder.empty()) {
    TROUPE_CHECK(make_checkpoint(plan, options.make_folder));
    figures.folder = options.make_folder;
  }
  TROUPE_TRY(const auto files, weight_files(figures.folder));
  figures.files = files.size();
  figures.threads = reading_threads();
  TROUPE_TRY(const auto ops, make_ops({.kind = plan.engine.device,
                                       .dtype = plan.engine.dtype,
                                       .threads = plan.engine.threads_per_worker,
                                       .encoding = plan.engine.encoding}));
  TROUPE_TRY(figures.copy_rate, measure_copy(*ops));
  // For the warm case, files are read once before, so that they are in the page cache.
  if (options.cold) {
    TROUPE_CHECK(drop_from_cache(files));
  } else {
    TROUPE_TRY([[maybe_unused]] const double first_rate, measure_reading(files, figures.threads));
  }
  TROUPE_TRY(figures.reading_rate, measure_reading(files, figures.threads));
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    if (options.cold) TROUPE_CHECK(drop_from_cache(files));
    TROUPE_TRY(const Loading loading, load(plan, figures.folder, *ops, figures));
    figures.loadings.push_back(loading);
  }
  return figures;
}

double gigabytes(double bytes) { return bytes * 1e-9; }

std::string to_table(const WeightsFigures& figures) {
  const auto bytes = static_cast<double>(figures.bytes);
  std::string text =
      fmt::format("{}, {:.2f} GB of weights on {}, {} files{}\n", figures.folder, gigabytes(bytes),
                  figures.device, figures.files, figures.cold ? ", not in the page cache" : "");
  text += fmt::format("  a copy of page-locked memory to the device  {:6.1f} GB/s\n",
                      gigabytes(figures.copy_rate));
  text += fmt::format("  a plain reading of the files, {:2} threads     {:6.1f} GB/s\n",
                      figures.threads, gigabytes(figures.reading_rate));
  for (const Loading& loading : figures.loadings) {
    text += fmt::format("  loading the model, {:6.2f} s                {:6.1f} GB/s",
                        loading.seconds, gigabytes(bytes / loading.seconds));
    if (loading.read_seconds > 0) {
      text += fmt::format("; its weights alone {:.1f} GB/s, {:.0f} % of them past the page cache",
                          gigabytes(bytes / loading.read_seconds),
                          100.0 * static_cast<double>(loading.direct_bytes) / bytes);
    }
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const WeightsFigures& figures) {
  nlohmann::ordered_json json{{"folder", figures.folder},
                              {"device", figures.device},
                              {"weight_bytes", figures.bytes},
                              {"files", figures.files},
                              {"cold", figures.cold},
                              {"copy_bytes_per_second", figures.copy_rate},
                              {"reading_threads", figures.threads},
                              {"reading_bytes_per_second", figures.reading_rate}};
  for (const Loading& loading : figures.loadings) {
    json["loadings"].push_back({{"seconds", loading.seconds},
                                {"read_seconds", loading.read_seconds},
                                {"direct_bytes", loading.direct_bytes}});
  }
  return json;
}

}  // namespace

ExitCode run_weights_bench(const WeightsBenchOptions& options) {
  const auto plan = plan_part_bench(options);
  if (!plan.ok()) return tell(plan.error(), ExitCode::refused);
  if (plan->engine.load_format == LoadFormat::dummy && options.make_folder.empty()) {
    return tell(fail(ErrorCode::invalid_argument,
                     "model.load_format is dummy, so there is nothing to read: give --make FOLDER"),
                ExitCode::refused);
  }
  std::error_code unknown;
  const std::filesystem::path folder = options.make_folder;
  if (!folder.empty() && std::filesystem::exists(folder / "config.json", unknown)) {
    return tell(fail(ErrorCode::invalid_argument,
                     "--make {}: a config.json is there, so the weights of a model may be too, "
                     "which would be replaced: give another folder",
                     folder.string()),
                ExitCode::refused);
  }
  const auto figures = measure(options, *plan);
  if (!figures.ok()) return tell(figures.error(), ExitCode::failed);
  return show_figures(to_table(*figures), to_json(*figures), options);
}

}  // namespace troupe
