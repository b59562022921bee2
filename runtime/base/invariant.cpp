#include "runtime/base/invariant.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/base/log.hpp"

namespace troupe {
namespace {

[[noreturn]] void end(const std::string& problem) {
  log::error("{}", problem);
  std::fprintf(stderr, "%s\n", problem.c_str());
  std::abort();
}

}  // namespace

void require(const Result<void>& done, std::string_view what) {
  if (!done.ok()) end(fmt::format("a bug of Troupe: {}: {}", what, done.error().message));
}

void require(bool holds, std::string_view what) {
  if (!holds) end(fmt::format("a bug of Troupe: {}", what));
}

}  // namespace troupe
