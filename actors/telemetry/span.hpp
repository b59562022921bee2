#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Activities of an engine process. On one thread, spans are disjoint or nested.
enum class SpanKind : std::uint8_t {
  // A worker's step thread. All that follow up to `draft` are inside `step`.
  wait_plan,  ///< for the executor's next plan
  step,       ///< carrying out a plan
  forward,    ///< one micro-batch through this rank's layers, waits included
  stage,      ///< sending activations or sampled ids to another stage, or waiting for them
  exchange,   ///< a collective among the ranks of a stage: bytes moved and the wait for the others
  sample,     ///< choosing tokens from logits
  draft,      ///< a draft model guessing next tokens
  reply,      ///< sending the step's result to the executor
  // The executor's step loop.
  idle,         ///< no request is live
  plan,         ///< deciding what the next step computes
  send_plan,    ///< encoding it and sending it to the workers
  wait_result,  ///< for the oldest step in flight
  apply,        ///< taking a result into the scheduler
  answer,       ///< detokenising, matching stop strings, building answers
  report,       ///< reporting to the driver
  // The driver's process.
  read,   ///< input lines, until their requests are submitted
  route,  ///< requests to replicas
  write,  ///< answers to the output file
};
inline constexpr std::size_t span_kinds = 18;

/// "wait for a plan", "forward", ...: for people.
std::string_view describe(SpanKind kind);
/// "wait_plan", "forward", ...: for programs.
std::string_view name(SpanKind kind);

/// One interval of a thread's time, in nanoseconds of CLOCK_MONOTONIC on the machine of the
/// process.
struct Span {
  SpanKind kind = SpanKind::idle;
  std::uint64_t step = 0;  ///< the plan's number; counts up by one in each domain
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  bool operator==(const Span&) const = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, step, begin_ns, end_ns);
  }
};

/// How often each kind of span occurred, and for how long altogether. A kind's time includes that
/// of nested spans.
struct SpanTotals {
  std::array<std::uint64_t, span_kinds> counts{};
  std::array<std::int64_t, span_kinds> ns{};

  std::uint64_t count(SpanKind kind) const { return counts[static_cast<std::size_t>(kind)]; }
  double seconds(SpanKind kind) const {
    return static_cast<double>(ns[static_cast<std::size_t>(kind)]) * 1e-9;
  }

  bool operator==(const SpanTotals&) const = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(counts, ns);
  }
};

/// CLOCK_MONOTONIC, which all processes of a machine share.
std::int64_t monotonic_ns();

}  // namespace troupe
