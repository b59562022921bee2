#pragma once

#include <memory>
#include <string>

#include "runtime/call/transport.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The call plane's transport for one process of the job. It listens at "troupe-<job_id>-" and 32
/// random digits, so that no other process can take the name beforehand.
Result<std::unique_ptr<Transport>> make_job_transport(const Key& call_key,
                                                      const std::string& job_id);

}  // namespace troupe
