#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/bench/ceilings/ceilings.hpp"

namespace troupe {

/// One operation at one number of rows.
struct OpFigure {
  std::string op = {};     ///< "qkv", "attention", ...
  std::string shape = {};  ///< of one row, e.g. "4096 -> 6144"
  std::int64_t rows = 0;   ///< tokens of the pass
  std::int64_t count = 0;  ///< how often a pass of the model runs it
  double seconds = 0;      ///< for one run
  double bytes = 0;        ///< minimum traffic from and to memory
  double operations = 0;   ///< of matrix multiply-adds, two each
  /// Attention of a decode step: the same where a prefix that all sequences share is read once
  /// (cascade attention); 0: there is none, or none that pays.
  double cascade_seconds = 0;

  /// The shortest possible time at these ceilings.
  double min_seconds(const Ceilings& ceilings) const;
};

/// A layer of a decode step of a dense model: its operations one after the other, in a captured
/// graph where the device has those.
struct LayerFigure {
  std::int64_t rows = 0;
  double seconds = 0;
};

struct OpsFigures {
  std::string model = {}, device = {}, dtype = {};
  int tensor_parallel_size = 1;
  std::int64_t context = 0;
  std::int64_t prefix = 0;           ///< tokens that all sequences of decode steps share
  std::int64_t max_decode_rows = 0;  ///< passes of more rows are prefill
  Ceilings ceilings = {};
  std::vector<std::int64_t> rows = {};
  std::vector<OpFigure> ops = {};
  std::vector<LayerFigure> layers = {};
};

/// A pass of `rows` tokens through one worker, one operation after the other.
struct PassFigures {
  std::int64_t rows = 0;
  double roofline_seconds = 0;  ///< the sum of the shortest possible times
  double seconds = 0;           ///< the sum of measured times
  double cascade_seconds = 0;   ///< the same with cascade attention where there is any
  double bytes = 0, operations = 0;
};
PassFigures pass_of(const OpsFigures& figures, std::int64_t rows);

/// A table for people: a line for each operation and number of rows, and one for each pass; at most
/// 79 columns.
std::string to_table(const OpsFigures& figures);
nlohmann::ordered_json to_json(const OpsFigures& figures);

}  // namespace troupe
