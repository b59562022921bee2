#include "launcher/metrics/metrics_endpoint.hpp"

#include <filesystem>
#include <fstream>

#include "runtime/base/log.hpp"

namespace troupe {

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::open(const Config& config,
                                                               std::int64_t max_model_len,
                                                               const std::string& job_folder) {
  const std::string note = job_folder + "/metrics.txt";
  // Remove a file from a run that was killed: its port is closed.
  std::error_code problem;
  std::filesystem::remove(note, problem);
  if (!config.metrics.port) return std::unique_ptr<MetricsEndpoint>();
  std::unique_ptr<MetricsEndpoint> endpoint(
      new MetricsEndpoint(config.model.served_model_name.front(), max_model_len, note));
  TROUPE_TRY(
      endpoint->server_,
      MetricsServer::start(config.metrics.address, static_cast<std::uint16_t>(*config.metrics.port),
                           [metrics = &endpoint->metrics_] { return metrics->text(); }));
  const std::string url = endpoint->server_->url();
  log::info("metrics at {}", url);
  // Written elsewhere and renamed, so that readers see the whole file.
  const std::string aside = endpoint->note_ + ".new";
  std::ofstream file(aside, std::ios::trunc);
  file << url << "\n";
  file.close();
  std::filesystem::rename(aside, endpoint->note_, problem);
  if (!file || problem) return fail(ErrorCode::io, "cannot write {}", endpoint->note_);
  return endpoint;
}

MetricsEndpoint::~MetricsEndpoint() {
  std::error_code ignored;
  std::filesystem::remove(note_, ignored);
}

}  // namespace troupe
