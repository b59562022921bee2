#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "launcher/bench/throughput/figures.hpp"
#include "launcher/job/job_plan.hpp"

namespace troupe {

/// The conditions of a measurement.
struct BenchSubject {
  std::string kind;      ///< throughput, latency or startup
  std::string workload;  ///< Workload::description
  std::size_t requests = 0;
};

/// Tables for a person, at most 79 columns, each line ended.
std::string bench_heading(const BenchSubject& subject, const JobPlan& plan);
std::string to_table(const ThroughputFigures& figures);
std::string to_table(const LatencyFigures& figures);
std::string to_table(std::span<const StartupFigures> starts);

/// Figures for programs: an object with "bench", "model", "load_format", "dtype", "workload",
/// "requests", "parallel" (sizes), "engine" (bounds), and the figures under their names with units.
nlohmann::ordered_json bench_subject_json(const BenchSubject& subject, const JobPlan& plan);
nlohmann::ordered_json to_json(const ThroughputFigures& figures);
nlohmann::ordered_json to_json(const LatencyFigures& figures);
nlohmann::ordered_json to_json(std::span<const StartupFigures> starts);

}  // namespace troupe
