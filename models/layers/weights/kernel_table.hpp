#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// What the matrices of a model are multiplied as, for the log: a kernel that a layer does not get
/// shall not go unnoticed.
class KernelTable {
 public:
  void add(const std::string& kernel, const std::string& matrix, std::int64_t layer) {
    layers_[{kernel, matrix}].insert(layer);
  }
  /// A line for each kernel: "int8 codes: q_proj+k_proj+v_proj 0-27, lm_head".
  std::vector<std::string> lines() const;

 private:
  std::map<std::pair<std::string, std::string>, std::set<std::int64_t>> layers_;
};

/// "0-3, 5" of numbers in order; empty for -1 alone, which stands for no layer.
std::string ranges_of(const std::set<std::int64_t>& numbers);

}  // namespace troupe
