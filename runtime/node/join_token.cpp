#include "runtime/node/join_token.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/node/key_text.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

constexpr std::string_view magic = "troupe-token 1 ";

Result<void> check_private(int fd, const std::string& path) {
  struct stat file{};
  if (::fstat(fd, &file) != 0) return fail_errno(errno, "cannot look at the token file " + path);
  if (!S_ISREG(file.st_mode)) {
    return fail(ErrorCode::invalid_argument, "the token file {} is no regular file", path);
  }
  if ((file.st_mode & 077) == 0) return {};
  return fail(
      ErrorCode::permission_denied,
      "others can read or write the token file {} (mode {:03o}): chmod 600 it, and if it was "
      "so for long, remove it for a new one",
      path, file.st_mode & 0777);
}

/// Makes the file with a new key, unless there is one at `path` by then. It is written under
/// another name, so that nobody ever finds a part of it at `path`.
Result<void> make(const std::string& path) {
  SecretKey key;
  TROUPE_CHECK(random_bytes(key.bytes));
  std::string unfinished = path + ".XXXXXX";
  const UniqueFd file(::mkostemp(unfinished.data(), O_CLOEXEC));  // mode 0600
  if (!file) return fail_errno(errno, "cannot make the token file " + path);
  std::string text = std::string(magic) + to_hex(key.bytes) + "\n";
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  const bool is_whole = written == static_cast<ssize_t>(text.size());
  wipe(std::as_writable_bytes(std::span(text)));
  const bool is_made = is_whole && ::link(unfinished.c_str(), path.c_str()) == 0;
  const int code = errno;
  ::unlink(unfinished.c_str());
  if (is_made || (is_whole && code == EEXIST)) return {};
  if (is_whole) return fail_errno(code, "cannot make the token file " + path);
  return fail(ErrorCode::io, "cannot write the token file {}", path);
}

}  // namespace

Result<SecretKey> read_join_token(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) {
    return fail(ErrorCode::not_found, "there is no token file {}: copy the one of the launcher",
                path);
  }
  if (!file) return fail_errno(errno, "cannot open the token file " + path);
  TROUPE_CHECK(check_private(file.get(), path));
  std::array<char, 256> text{};
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (line.ends_with('\n')) line.remove_suffix(1);
  SecretKey key;
  const bool is_token = line.starts_with(magic) && read_key(line.substr(magic.size()), key.bytes);
  wipe(std::as_writable_bytes(std::span(text)));
  if (is_token) return key;
  return fail(ErrorCode::invalid_argument,
              "{} is no token file ('{}KEY'): remove it, and the launcher makes one", path, magic);
}

Result<SecretKey> read_or_make_join_token(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    TROUPE_CHECK(make(path));
  }
  return read_join_token(path);
}

}  // namespace troupe
