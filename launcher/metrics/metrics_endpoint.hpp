#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "launcher/config/cluster_config.hpp"
#include "launcher/metrics/job_metrics.hpp"
#include "runtime/base/result.hpp"
#include "runtime/http/metrics_server.hpp"

namespace troupe {

/// The metrics of a job and the port that serves them, as configured under `metrics:`.
class MetricsEndpoint {
 public:
  /// Removes an earlier run's metrics.txt, opens the port, writes its url to the log and to
  /// metrics.txt in the existing `job_folder`. Null if metrics.port is off. `max_model_len`: see
  /// JobMetrics. Errors: those of MetricsServer::start; io if the file cannot be written.
  static Result<std::unique_ptr<MetricsEndpoint>> open(const Config& config,
                                                       std::int64_t max_model_len,
                                                       const std::string& job_folder);
  /// Closes the port and removes metrics.txt, which would name a closed port.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  JobMetrics& metrics() { return metrics_; }

 private:
  MetricsEndpoint(const std::string& model_name, std::int64_t max_model_len, std::string note)
      : metrics_(model_name, max_model_len), note_(std::move(note)) {}

  JobMetrics metrics_;
  std::string note_;
  std::unique_ptr<MetricsServer> server_;  // last: its thread reads metrics_
};

}  // namespace troupe
