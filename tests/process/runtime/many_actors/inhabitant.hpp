#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "tests/support/process_usage.hpp"

namespace troupe::test {

/// One of very many actors of a process.
class Inhabitant {
 public:
  explicit Inhabitant(int number) : number_(number) {}
  int number() { return number_; }

  static constexpr std::string_view actor_type = "Inhabitant";
  using Arguments = troupe::Arguments<int>;
  using Methods = troupe::Methods<&Inhabitant::number>;

 private:
  int number_;
};

/// What a process has.
struct Figures {
  int pid = 0;
  int threads = 0;
  double heap_bytes = 0;  ///< allocated, whatever the allocator keeps beside it
  double resident_bytes = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(pid, threads, heap_bytes, resident_bytes);
  }
};

inline Figures figures_of_this_process() {
  std::uint64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  const auto threads = std::filesystem::directory_iterator("/proc/self/task");
  return {::getpid(), static_cast<int>(std::distance(begin(threads), end(threads))), heap_bytes(),
          static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE))};
}

/// Tells what its process has.
class Census {
 public:
  Figures figures() { return figures_of_this_process(); }

  static constexpr std::string_view actor_type = "Census";
  using Methods = troupe::Methods<&Census::figures>;
};

}  // namespace troupe::test
