#include "launcher/bench/ops/op_figures.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe {
namespace {

std::string pass_line(const OpsFigures& figures, const PassFigures& pass) {
  const bool decode = pass.rows <= figures.max_decode_rows;
  const std::string what = decode
                               ? fmt::format("decode {} at context {}", pass.rows, figures.context)
                               : fmt::format("prefill {} in parts of {}", pass.rows,
                                             std::min(pass.rows, figures.context));
  return fmt::format("{:<28} roofline {:>9.3f} ms, ops {:>9.3f} ms, {:>3.0f} %\n", what,
                     1e3 * pass.roofline_seconds, 1e3 * pass.seconds,
                     100 * pass.roofline_seconds / pass.seconds);
}

/// What cascade attention saves a decode step; empty if nothing.
std::string cascade_line(const OpsFigures& figures, const PassFigures& pass) {
  std::string text;
  for (const OpFigure& op : figures.ops) {
    if (op.rows != pass.rows || op.cascade_seconds == 0) continue;
    text += fmt::format(
        "  a shared prefix of {}: attention {:.1f} us, {:.2f} x as fast;\n"
        "  the step's ops {:.3f} ms, {:.2f} x as fast\n",
        figures.prefix, 1e6 * op.cascade_seconds, op.seconds / op.cascade_seconds,
        1e3 * pass.cascade_seconds, pass.seconds / pass.cascade_seconds);
  }
  return text;
}

std::string layer_line(const OpsFigures& figures, std::int64_t rows) {
  for (const LayerFigure& layer : figures.layers) {
    if (layer.rows != rows) continue;
    return fmt::format("  a layer's operations in turn {:>6.1f} us\n", 1e6 * layer.seconds);
  }
  return "";
}

}  // namespace

double OpFigure::min_seconds(const Ceilings& ceilings) const {
  return std::max(bytes / ceilings.bytes_per_second, operations / ceilings.operations_per_second);
}

PassFigures pass_of(const OpsFigures& figures, std::int64_t rows) {
  PassFigures pass{.rows = rows};
  for (const OpFigure& op : figures.ops) {
    if (op.rows != rows) continue;
    const auto count = static_cast<double>(op.count);
    pass.roofline_seconds += count * op.min_seconds(figures.ceilings);
    pass.seconds += count * op.seconds;
    pass.cascade_seconds += count * (op.cascade_seconds > 0 ? op.cascade_seconds : op.seconds);
    pass.bytes += count * op.bytes;
    pass.operations += count * op.operations;
  }
  return pass;
}

std::string to_table(const OpsFigures& figures) {
  std::string text = fmt::format(
      "{}, {}, {}{}\nceilings: {:.0f} GB/s, {:.0f} GFLOP/s\n\n"
      "{:<15} {:>16} {:>3} {:>6} {:>10} {:>8} {:>9} {:>4}\n",
      figures.model, figures.dtype, figures.device,
      figures.tensor_parallel_size > 1
          ? fmt::format(", one of {} tensor ranks", figures.tensor_parallel_size)
          : "",
      figures.ceilings.bytes_per_second * 1e-9, figures.ceilings.operations_per_second * 1e-9, "op",
      "sizes", "x", "rows", "us", "GB/s", "GFLOP/s", "%");
  for (const OpFigure& op : figures.ops) {
    text += fmt::format("{:<15} {:>16} {:>3} {:>6} {:>10.1f} {:>8.1f} {:>9.0f} {:>4.0f}\n", op.op,
                        op.shape, op.count, op.rows, 1e6 * op.seconds, 1e-9 * op.bytes / op.seconds,
                        1e-9 * op.operations / op.seconds,
                        100 * op.min_seconds(figures.ceilings) / op.seconds);
  }
  text += "\n";
  for (const std::int64_t rows : figures.rows) {
    const PassFigures pass = pass_of(figures, rows);
    text += pass_line(figures, pass) + layer_line(figures, rows) + cascade_line(figures, pass);
  }
  return text;
}

nlohmann::ordered_json to_json(const OpsFigures& figures) {
  nlohmann::ordered_json json{{"bench", "ops"},
                              {"model", figures.model},
                              {"dtype", figures.dtype},
                              {"device", figures.device},
                              {"tensor_parallel_size", figures.tensor_parallel_size},
                              {"context", figures.context},
                              {"prefix", figures.prefix},
                              {"ceilings",
                               {{"bytes_per_second", figures.ceilings.bytes_per_second},
                                {"operations_per_second", figures.ceilings.operations_per_second}}},
                              {"ops", nlohmann::ordered_json::array()},
                              {"layers", nlohmann::ordered_json::array()},
                              {"passes", nlohmann::ordered_json::array()}};
  for (const OpFigure& op : figures.ops) {
    json["ops"].push_back({{"op", op.op},
                           {"sizes", op.shape},
                           {"count", op.count},
                           {"rows", op.rows},
                           {"seconds", op.seconds},
                           {"cascade_seconds", op.cascade_seconds},
                           {"bytes", op.bytes},
                           {"operations", op.operations},
                           {"of_ceiling", op.min_seconds(figures.ceilings) / op.seconds}});
  }
  for (const LayerFigure& layer : figures.layers) {
    json["layers"].push_back({{"rows", layer.rows}, {"seconds", layer.seconds}});
  }
  for (const std::int64_t rows : figures.rows) {
    const PassFigures pass = pass_of(figures, rows);
    json["passes"].push_back({{"rows", rows},
                              {"kind", rows <= figures.max_decode_rows ? "decode" : "prefill"},
                              {"roofline_seconds", pass.roofline_seconds},
                              {"ops_seconds", pass.seconds},
                              {"cascade_seconds", pass.cascade_seconds},
                              {"bytes", pass.bytes},
                              {"operations", pass.operations}});
  }
  return json;
}

}  // namespace troupe
