#include "parallel/collectives/collective_call.hpp"

#include <string_view>

#include <fmt/format.h>

namespace troupe {

namespace {

std::string_view to_string(CollectiveCall::Kind kind) {
  switch (kind) {
    case CollectiveCall::Kind::none:
      return "no call";
    case CollectiveCall::Kind::all_reduce:
      return "all-reduce";
    case CollectiveCall::Kind::reduce_scatter:
      return "reduce-scatter";
    case CollectiveCall::Kind::all_gather:
      return "all-gather";
    case CollectiveCall::Kind::broadcast:
      return "broadcast";
    case CollectiveCall::Kind::all_to_all:
      return "all-to-all";
    case CollectiveCall::Kind::barrier:
      return "barrier";
    case CollectiveCall::Kind::message:
      return "message";
  }
  return "unknown";
}

}  // namespace

std::string describe(const CollectiveCall& call) {
  std::string text = fmt::format("{} of {} bytes", to_string(call.kind), call.bytes);
  if (call.kind != CollectiveCall::Kind::broadcast) return text;
  return fmt::format("{}, root {}", text, call.root);
}

}  // namespace troupe
