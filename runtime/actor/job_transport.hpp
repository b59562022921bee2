#pragma once

#include <memory>
#include <string>

#include "runtime/call/transport.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The call plane's transport of one process of the job, listening at "troupe-<job_id>-<process>".
std::unique_ptr<Transport> make_job_transport(const JobKeys& keys, const std::string& job_id,
                                              const std::string& process);

}  // namespace troupe
