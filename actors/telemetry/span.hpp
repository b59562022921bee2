#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// What a process of the engine can be seen doing. On one thread, spans lie side by side or one in
/// the other.
enum class SpanKind : std::uint8_t {
  // A worker's thread of steps. All that follows up to `draft` lies in `step`.
  wait_plan,  ///< for the executor's next plan
  step,       ///< carrying out a plan
  forward,    ///< one micro-batch through this rank's layers, what it waits for included
  stage,      ///< handing activations or sampled ids to another stage, or waiting for them
  exchange,   ///< a collective among the ranks of a stage: bytes moved and the wait for the others
  sample,     ///< choosing tokens from logits
  draft,      ///< a draft model guessing next tokens
  reply,      ///< telling the executor what the step brought
  // The executor's loop of steps.
  idle,         ///< no request is live
  plan,         ///< deciding what the next step computes
  send_plan,    ///< encoding it and handing it to the workers
  wait_result,  ///< for the oldest step in flight
  apply,        ///< taking a result into the scheduler
  answer,       ///< detokenising, stop strings, putting answers together
  report,       ///< telling the driver
  // The driver's process.
  read,   ///< input lines, up to requests that are handed over
  route,  ///< requests to replicas
  write,  ///< answers to the output file
};
inline constexpr std::size_t span_kinds = 18;

/// "wait for a plan", "forward", ...: what a person reads.
std::string_view describe(SpanKind kind);
/// "wait_plan", "forward", ...: what a program reads.
std::string_view name(SpanKind kind);

/// One piece of a thread's time. Times are nanoseconds of CLOCK_MONOTONIC on the machine that the
/// process runs on.
struct Span {
  SpanKind kind = SpanKind::idle;
  std::uint64_t step = 0;  ///< of the plan concerned; counts up by one in each domain
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  bool operator==(const Span&) const = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, step, begin_ns, end_ns);
  }
};

/// How often, and for how long altogether, each kind was seen. A kind's time includes that of the
/// spans in it.
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
