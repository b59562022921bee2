#pragma once

#include <filesystem>
#include <string>

namespace troupe::launcher_test {

/// The body of the answer from http://127.0.0.1:`port`/metrics; empty if there is none.
std::string scrape(int port);

/// The port in metrics.txt of a job's folder; 0, and the test fails, if there is none.
int metrics_port(const std::filesystem::path& job_folder);

}  // namespace troupe::launcher_test
