#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace troupe {

/// One collective of a group at one size.
struct CollectiveFigure {
  std::string call = {};       ///< "sum", "gather", "scatter", "exchange", "message"
  std::int64_t bytes = 0;      ///< of the whole tensor
  double seconds = 0;          ///< per call, in a sequence of calls
  double library_seconds = 0;  ///< of NCCL's own call, if there is one; else 0
};

/// The ranks of a group and their speed.
struct GroupFigures {
  std::string group = {};  ///< "tensor", "experts", "dense", "stages"
  int ranks = 1;
  std::vector<CollectiveFigure> calls = {};
};

struct CollectivesFigures {
  std::string device = {}, dtype = {};
  std::string ceiling = {};  ///< how the ceiling was measured
  double ceiling_bytes_per_second = 0;
  std::vector<GroupFigures> groups = {};
};

/// The share of its bytes that such a call sends over each link of a ring of `ranks`.
double ring_share(const std::string& call, int ranks);

/// A table for people; at most 79 columns.
std::string to_table(const CollectivesFigures& figures);
nlohmann::ordered_json to_json(const CollectivesFigures& figures);

}  // namespace troupe
