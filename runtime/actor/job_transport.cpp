#include "runtime/actor/job_transport.hpp"

#include <array>

#include "runtime/call/unix_transport.hpp"

namespace troupe {

Result<std::unique_ptr<Transport>> make_job_transport(const Key& call_key,
                                                      const std::string& job_id) {
  std::array<std::byte, 16> unguessable{};
  TROUPE_CHECK(random_bytes(unguessable));
  UnixTransport::Options options;
  options.endpoint = fmt::format("troupe-{}-{}", job_id, to_hex(unguessable));
  options.key = call_key;
  options.identity.build = this_build();
  return std::unique_ptr<Transport>(std::make_unique<UnixTransport>(std::move(options)));
}

}  // namespace troupe
