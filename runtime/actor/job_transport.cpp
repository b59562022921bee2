#include "runtime/actor/job_transport.hpp"

#include "runtime/call/unix_transport.hpp"

namespace troupe {

std::unique_ptr<Transport> make_job_transport(const JobKeys& keys, const std::string& job_id,
                                              const std::string& process) {
  UnixTransport::Options options;
  options.endpoint = fmt::format("troupe-{}-{}", job_id, process);
  options.key = keys.derive("call plane");
  options.identity.build = this_build();
  return std::make_unique<UnixTransport>(std::move(options));
}

}  // namespace troupe
