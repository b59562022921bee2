#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

/// Takes memory and keeps it.
class Eater {
 public:
  std::uint64_t eat(std::uint64_t mib) {
    for (std::uint64_t i = 0; i < mib; ++i) {
      constexpr std::size_t bytes = std::size_t{1} << 20;
      eaten_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
      std::memset(eaten_.back().get(), static_cast<int>(i) + 1, bytes);
    }
    return eaten_.size();
  }
  void digest_for_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  static constexpr std::string_view actor_type = "Eater";
  using Methods = troupe::Methods<&Eater::eat, &Eater::digest_for_ms>;

 private:
  std::vector<std::unique_ptr<char[]>> eaten_;
};

}  // namespace troupe::test
