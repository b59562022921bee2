#include "runtime/process/open_files.hpp"

#include <algorithm>

#include <sys/resource.h>

namespace troupe {
namespace {

/// Enough for any job. Where the hard limit is 2^30, as in some containers, programs that close all
/// descriptors one by one would take minutes.
constexpr rlim_t most_descriptors = 1 << 20;

}  // namespace

std::uint64_t open_file_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void raise_open_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, most_descriptors);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // allowed up to the hard limit
}

}  // namespace troupe
