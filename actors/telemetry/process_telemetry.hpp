#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/telemetry/distribution_sketch.hpp"
#include "actors/telemetry/span.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/telemetry/tcp_traffic.hpp"

namespace troupe {

/// How many rows (a token with one of its experts) each expert computed on one rank, which holds
/// layers [first_layer, first_layer + layers) and experts [first_expert, first_expert + experts).
/// If several ranks compute parts of the same rows, only one reports them.
struct ExpertRows {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  std::int64_t first_expert = 0;
  std::int64_t experts = 0;
  std::vector<std::int64_t> rows;  ///< [layers][experts]; empty: none, or reported by another rank

  template <class Archive>
  void fields(Archive& archive) {
    archive(first_layer, layers, first_expert, experts, rows);
  }
};

enum class ProcessRole : std::uint8_t { driver, executor, worker };

/// Telemetry of one process of the engine since its start.
struct ProcessTelemetry {
  std::string process;  ///< the actor's name: "executor", "worker-0"
  ProcessRole role = ProcessRole::worker;
  std::int32_t index = 0;     ///< a worker's rank, an executor's domain
  std::int32_t replica = 0;   ///< of a worker
  std::int32_t stage = 0;     ///< of a worker
  std::string place;          ///< of a worker in the mesh: "data 0, stage 1, ..."
  std::int64_t now_ns = 0;    ///< when it was taken, by its machine's CLOCK_MONOTONIC
  std::int64_t since_ns = 0;  ///< when it began to serve
  SpanTotals totals;
  /// True if the ranks exchange on GPUs: that time is in the worker's steps and in no span.
  bool exchanges_on_device = false;

  // The rest is filled in only when requested.
  SpanRecorder::Kept kept;
  std::uint64_t rows = 0;             ///< of a worker: tokens that passed its layers
  ExpertRows expert_rows;             ///< of a worker
  DistributionSketch inter_token_us;  ///< of an executor: between a sequence's tokens
  std::vector<TcpTraffic> traffic;    ///< with other hosts
  std::vector<std::string> kernels;   ///< of a worker: Model::kernels

  template <class Archive>
  void fields(Archive& archive) {
    archive(process, role, index, replica, stage, place, now_ns, since_ns, totals,
            exchanges_on_device, kept.spans, kept.all, rows, expert_rows, inter_token_us, traffic,
            kernels);
  }
};

}  // namespace troupe
