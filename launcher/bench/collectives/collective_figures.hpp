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
  double seconds = 0;          ///< of a call, one behind the other
  double library_seconds = 0;  ///< of NCCL's own, where there is one; else 0
};

/// The ranks that call each other, and how fast they are.
struct GroupFigures {
  std::string group = {};  ///< "tensor", "experts", "stages"
  int ranks = 1;
  std::vector<CollectiveFigure> calls = {};
};

struct CollectivesFigures {
  std::string device = {}, dtype = {};
  std::string ceiling = {};  ///< what the ceiling was measured with
  double ceiling_bytes_per_second = 0;
  std::vector<GroupFigures> groups = {};
};

/// What a ring of `ranks` would have to carry on each link for such a call, of its bytes.
double ring_share(const std::string& call, int ranks);

/// For a person; at most 79 columns.
std::string to_table(const CollectivesFigures& figures);
nlohmann::ordered_json to_json(const CollectivesFigures& figures);

}  // namespace troupe
