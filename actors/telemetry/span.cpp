#include "actors/telemetry/span.hpp"

#include <chrono>

namespace troupe {
namespace {

struct Words {
  std::string_view name;
  std::string_view description;
};

constexpr std::array<Words, span_kinds> words = {{
    {"wait_plan", "wait for a plan"},
    {"step", "step"},
    {"forward", "forward"},
    {"stage", "other stage"},
    {"exchange", "exchange"},
    {"sample", "sample"},
    {"draft", "draft"},
    {"reply", "reply"},
    {"idle", "idle"},
    {"plan", "plan"},
    {"send_plan", "send plan"},
    {"wait_result", "wait for a result"},
    {"apply", "apply result"},
    {"answer", "answers"},
    {"report", "report"},
    {"read", "read"},
    {"route", "route"},
    {"write", "write"},
}};

}  // namespace

std::string_view describe(SpanKind kind) {
  return words[static_cast<std::size_t>(kind)].description;
}

std::string_view name(SpanKind kind) { return words[static_cast<std::size_t>(kind)].name; }

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace troupe
