#include "launcher/bench/ops/model_ops.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "models/layers/model_limits.hpp"
#include "models/layers/weights/parameters.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {
namespace {

constexpr double gpu_cache_bytes = 192e6;  // more than any GPU's cache, so that operands come from
                                           // memory
constexpr double cpu_cache_bytes = 64e6;
constexpr std::size_t max_turns = 512;
constexpr std::int64_t copied_rows = 1 << 16, copied_width = 4096;  // bf16: 1 GiB read and written
constexpr std::int64_t product_size = 8192;
constexpr float epsilon = 1e-6F;

}  // namespace

ModelOps::ModelOps(Ops& ops, const ModelConfig& model, const ModelOpsOptions& options)
    : ops_(ops),
      model_(model),
      options_(options),
      timer_(ops, options.on_gpu, options.seconds),
      activation_(ops.activation_dtype()),
      summed_(options.deterministic ? DType::f32 : activation_),
      heads_(std::max<std::int64_t>(1, model.heads / options.tensor_ranks)),
      kv_heads_(std::max<std::int64_t>(1, model.kv_heads / options.tensor_ranks)) {}

Result<void> ModelOps::measure(OpsFigures& figures) {
  TROUPE_CHECK(measure_ceilings(figures.ceilings));
  TROUPE_CHECK(measure_row_ops(figures));
  TROUPE_CHECK(measure_attention(figures));
  if (model_.latent) TROUPE_CHECK(measure_latent_heads(figures));
  for (const Matrix& matrix : matrices()) TROUPE_CHECK(measure_matrix(figures, matrix));
  TROUPE_CHECK(measure_layers(figures));
  if (!model_.moe) return {};
  TROUPE_CHECK(measure_routing(figures));
  return measure_experts(figures);
}

HostTensor ModelOps::random_weight(const Shape& shape) const {
  HostTensor tensor(options_.dtype, shape);
  std::uint32_t state = 1;
  const auto fill = [&](auto* values, const auto& of) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      state = state * 1664525U + 1013904223U;
      values[i] = of(static_cast<float>(state >> 8) * 0x1p-24F - 0.5F);
    }
  };
  if (options_.dtype == DType::bf16) {
    fill(tensor->as<BFloat16>(), to_bfloat16);
  } else {
    fill(tensor->as<float>(), [](float value) { return value; });
  }
  return tensor;
}

Result<DeviceTensor> ModelOps::random(DType dtype, const Shape& shape) {
  TROUPE_TRY(DeviceTensor device, ops_.memory().allocate(dtype, shape));
  HostTensor host = random_weight(shape);
  if (options_.dtype != dtype) {
    HostTensor converted(dtype, shape);
    convert(host, converted);
    host = std::move(converted);
  }
  ops_.memory().upload(host, device);
  TROUPE_CHECK(ops_.stream().synchronize());
  return device;
}

std::size_t ModelOps::turns(double bytes) const {
  const double wanted = (options_.on_gpu ? gpu_cache_bytes : cpu_cache_bytes) / bytes;
  return std::clamp<std::size_t>(static_cast<std::size_t>(wanted) + 1, 1, max_turns);
}

Result<void> ModelOps::add(OpsFigures& figures, OpFigure figure,
                           const std::function<void(std::size_t turn)>& enqueue, bool capturable) {
  TROUPE_TRY(figure.seconds, timer_.time(enqueue, capturable));
  figures.ops.push_back(std::move(figure));
  return {};
}

Result<void> ModelOps::measure_ceilings(Ceilings& ceilings) {
  if (!options_.on_gpu) {
    ceilings = troupe::measure_ceilings(options_.threads, 2 * options_.seconds);
    return {};
  }
  {
    TROUPE_TRY(const DeviceTensor from, random(activation_, {copied_rows, copied_width}));
    TROUPE_TRY(const DeviceTensor to,
               ops_.memory().allocate(activation_, {copied_rows, copied_width}));
    TROUPE_TRY(const DeviceTensor rows, ops_.memory().allocate(DType::i32, {copied_rows}));
    HostTensor numbers(DType::i32, {copied_rows});
    std::iota(numbers->span<std::int32_t>().begin(), numbers->span<std::int32_t>().end(), 0);
    ops_.memory().upload(numbers, rows);
    TROUPE_TRY(const double seconds,
               timer_.time([&](std::size_t) { ops_.dense().gather_rows(from, rows, to); }));
    ceilings.bytes_per_second = 2 * bytes_of({copied_rows, copied_width}, activation_) / seconds;
  }
  TROUPE_TRY(const auto weight, ops_.weights().prepare(random_weight({product_size, product_size}),
                                                       1, options_.encoding));
  TROUPE_TRY(const DeviceTensor x, random(activation_, {product_size, product_size}));
  TROUPE_TRY(const DeviceTensor out,
             ops_.memory().allocate(activation_, {product_size, product_size}));
  TROUPE_TRY(const double seconds,
             timer_.time([&](std::size_t) { ops_.dense().linear(*weight, x, out); }));
  const auto size = static_cast<double>(product_size);
  ceilings.operations_per_second = 2 * size * size * size / seconds;
  return {};
}

Result<void> ModelOps::measure_row_ops(OpsFigures& figures) {
  const std::int64_t hidden = model_.hidden_size, most = figures.rows.back();
  const HostTensor table_weight =
      random_weight({model_.vocab_size / options_.tensor_ranks, hidden});
  TROUPE_TRY(const DeviceTensor table, ops_.weights().prepare_table(table_weight));
  TROUPE_TRY(const DeviceTensor ids, ops_.memory().allocate(DType::i32, {most}));
  TROUPE_TRY(const DeviceTensor residual, random(activation_, {most, hidden}));
  TROUPE_TRY(const DeviceTensor update, random(summed_, {most, hidden}));
  TROUPE_TRY(const DeviceTensor out, ops_.memory().allocate(activation_, {most, hidden}));
  TROUPE_TRY(const DeviceTensor weight, random(DType::f32, {hidden}));
  HostTensor numbers(DType::i32, {most});
  std::minstd_rand engine(1);
  for (std::int32_t& id : numbers->span<std::int32_t>()) {
    id = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(table_weight->shape()[0]));
  }
  ops_.memory().upload(numbers, ids);
  TROUPE_CHECK(ops_.stream().synchronize());
  const std::string width = fmt::format("{}", hidden);
  for (const std::int64_t rows : figures.rows) {
    const double row_bytes = bytes_of({rows, hidden}, activation_);
    TROUPE_CHECK(add(
        figures, {.op = "embed", .shape = width, .rows = rows, .count = 1, .bytes = 2 * row_bytes},
        [&](std::size_t) {
          ops_.dense().embed(table, ids->rows(0, rows), 0, residual->rows(0, rows));
        }));
  }
  for (const std::int64_t rows : figures.rows) {
    const double row_bytes = bytes_of({rows, hidden}, activation_);
    const double update_bytes = bytes_of({rows, hidden}, summed_);
    TROUPE_CHECK(add(figures,
                     {.op = "add_rms_norm",
                      .shape = width,
                      .rows = rows,
                      .count = 2 * model_.layers,
                      .bytes = 3 * row_bytes + update_bytes},
                     [&](std::size_t) {
                       ops_.dense().add_rms_norm(residual->rows(0, rows), update->rows(0, rows),
                                                 weight, epsilon, out->rows(0, rows));
                     }));
  }
  if (sparse_layers() == model_.layers) return {};
  const std::int64_t inner = model_.intermediate_size / options_.tensor_ranks;
  TROUPE_TRY(const DeviceTensor gate_up, random(activation_, {most, 2 * inner}));
  TROUPE_TRY(const DeviceTensor activated, ops_.memory().allocate(activation_, {most, inner}));
  for (const std::int64_t rows : figures.rows) {
    TROUPE_CHECK(add(figures,
                     {.op = "silu_mul",
                      .shape = fmt::format("{}", inner),
                      .rows = rows,
                      .count = model_.layers - sparse_layers(),
                      .bytes = 3 * bytes_of({rows, inner}, activation_)},
                     [&](std::size_t) {
                       ops_.dense().silu_mul(gate_up->rows(0, rows), activated->rows(0, rows));
                     }));
  }
  return {};
}

std::int64_t ModelOps::sparse_layers() const {
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) layers += model_.is_sparse(layer);
  return layers;
}

std::vector<ModelOps::Matrix> ModelOps::matrices() const {
  const std::int64_t hidden = model_.hidden_size, layers = model_.layers, dim = model_.head_dim;
  const std::int64_t ranks = options_.tensor_ranks, dense = layers - sparse_layers();
  const auto segments = static_cast<int>(options_.deterministic ? max_exact_segments / ranks : 1);
  std::vector<Matrix> all;
  if (model_.latent) {
    const LatentConfig& latent = *model_.latent;
    const std::int64_t query = heads_ * (latent.unrotated_dim + latent.rotated_dim);
    const std::int64_t kv = latent.rank + latent.rotated_dim;
    if (latent.query_rank > 0) {
      all.push_back({"query down", latent.query_rank, hidden, layers, activation_});
      all.push_back({"query up", query, latent.query_rank, layers, activation_});
      all.push_back({"latent down", kv, hidden, layers, activation_});
    } else {
      all.push_back({"query and latent", query + kv, hidden, layers, activation_});
    }
    all.push_back({"attention out", hidden, heads_ * latent.value_dim, layers, summed_, segments});
  } else {
    all.push_back({"qkv", (heads_ + 2 * kv_heads_) * dim, hidden, layers, activation_});
    all.push_back({"attention out", hidden, heads_ * dim, layers, summed_, segments});
  }
  if (dense > 0) {
    const std::int64_t inner = model_.intermediate_size / ranks;
    all.push_back({"gate and up", 2 * inner, hidden, dense, activation_});
    all.push_back({"down", hidden, inner, dense, summed_, segments});
  }
  if (model_.moe) {
    if (const std::int64_t shared = model_.moe->shared_intermediate_size / ranks; shared > 0) {
      all.push_back({"shared gate, up", 2 * shared, hidden, sparse_layers(), activation_});
      all.push_back({"shared down", hidden, shared, sparse_layers(), summed_, segments});
    }
  }
  all.push_back({"head", model_.vocab_size / ranks, hidden, 1, DType::f32});
  return all;
}

Result<void> ModelOps::measure_matrix(OpsFigures& figures, const Matrix& matrix) {
  const HostTensor weight = random_weight({matrix.n, matrix.k});
  const WeightEncoding encoding =
      matrix.op == "head"
          ? encoding_for(Parameter::head, options_.encoding, false, options_.quantize_head)
          : options_.encoding;
  std::vector<std::unique_ptr<Linear>> copies;
  do {
    TROUPE_TRY(auto copy, ops_.weights().prepare(weight, matrix.segments, encoding));
    copies.push_back(std::move(copy));
  } while (copies.size() < turns(static_cast<double>(copies.front()->bytes())));
  // Only rows that are sampled reach the head: each sequence's last.
  const auto rows_of = [&](std::int64_t rows) {
    if (matrix.op != "head" || rows <= figures.max_decode_rows) return rows;
    return (rows + figures.context - 1) / figures.context;
  };
  const std::int64_t most = rows_of(figures.rows.back());
  const std::int64_t room = std::max(most, std::min(figures.max_decode_rows, figures.rows.back()));
  TROUPE_TRY(const DeviceTensor x, random(activation_, {room, matrix.k}));
  TROUPE_TRY(const DeviceTensor out, ops_.memory().allocate(matrix.out, {room, matrix.n}));
  for (const std::int64_t rows : figures.rows) {
    const std::int64_t taken = rows_of(rows);
    OpFigure figure{.op = matrix.op,
                    .shape = fmt::format("{} -> {}", matrix.k, matrix.n),
                    .rows = rows,
                    .count = matrix.count};
    figure.bytes = static_cast<double>(copies.front()->bytes()) +
                   bytes_of({taken, matrix.k}, activation_) +
                   bytes_of({taken, matrix.n}, matrix.out);
    figure.operations = 2 * static_cast<double>(taken) * static_cast<double>(matrix.n) *
                        static_cast<double>(matrix.k);
    TROUPE_CHECK(add(figures, std::move(figure), [&](std::size_t turn) {
      ops_.dense().linear(*copies[turn % copies.size()], x->rows(0, taken), out->rows(0, taken));
    }));
  }
  return {};
}

}  // namespace troupe
