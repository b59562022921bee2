#include "runtime/node/regions.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace troupe {

Result<UniqueFd> Regions::open(std::string_view name, std::size_t bytes) {
  if (bytes == 0) return fail(ErrorCode::invalid_argument, "shared memory '{}' of 0 bytes", name);
  auto found = regions_.find(name);
  if (found != regions_.end() && found->second.bytes != bytes) {
    return fail(ErrorCode::invalid_argument,
                "shared memory '{}' has {} bytes, but {} are asked for", name, found->second.bytes,
                bytes);
  }
  if (found == regions_.end()) {
    Region region;
    region.bytes = bytes;
    region.fd.reset(
        ::memfd_create(std::string("troupe-").append(name.substr(0, 200)).c_str(), MFD_CLOEXEC));
    if (!region.fd || ::ftruncate(region.fd.get(), static_cast<off_t>(bytes)) != 0) {
      return fail_errno(errno,
                        fmt::format("cannot make shared memory '{}' of {} bytes", name, bytes));
    }
    found = regions_.emplace(name, std::move(region)).first;
  }
  UniqueFd copy(::fcntl(found->second.fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return fail_errno(errno, "cannot duplicate a descriptor");
  return copy;
}

void Regions::release(std::string_view prefix) {
  std::erase_if(regions_, [&](const auto& region) {
    return std::string_view(region.first).starts_with(prefix);
  });
}

}  // namespace troupe
