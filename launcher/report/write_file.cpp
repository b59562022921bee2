#include "launcher/report/write_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace troupe {

Result<void> write_file(const std::string& path, std::string_view text) {
  const std::string unfinished = path + ".new";
  errno = 0;
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  const int problem = errno;
  (void)std::remove(unfinished.c_str());
  return fail(ErrorCode::io, "cannot write {}: {}", path, std::strerror(problem));
}

}  // namespace troupe
