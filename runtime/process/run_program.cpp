#include "runtime/process/run_program.hpp"

#include <array>
#include <cerrno>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/process/child_process.hpp"

namespace troupe {
namespace {

/// A file in memory that begins with `content`, to be read from its beginning.
Result<UniqueFd> memory_file(const char* name, std::string_view content) {
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "cannot make a file in memory");
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t count = ::write(file.get(), content.data() + done, content.size() - done);
    if (count < 0) return fail_errno(errno, "cannot write to a file in memory");
    done += static_cast<std::size_t>(count);
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::string content_of(int file) {
  std::string content;
  std::array<char, 4096> part{};
  ::lseek(file, 0, SEEK_SET);
  for (ssize_t count = 0; (count = ::read(file, part.data(), part.size())) > 0;) {
    content.append(part.data(), static_cast<std::size_t>(count));
  }
  return content;
}

}  // namespace

Result<std::string> run_program(const std::vector<std::string>& arguments, std::string_view input,
                                std::chrono::milliseconds timeout) {
  TROUPE_TRY(const UniqueFd in, memory_file("input", input));
  TROUPE_TRY(const UniqueFd out, memory_file("output", ""));
  TROUPE_TRY(auto process, ChildProcess::start({.arguments = arguments,
                                                .output_path = "",
                                                .input_fd = in.get(),
                                                .program = arguments.front(),
                                                .output_fd = out.get()}));
  const auto status = process.wait(timeout);
  if (!status) {
    return fail(ErrorCode::timed_out, "{} did not end within {} ms", arguments.front(),
                timeout.count());
  }
  std::string written = content_of(out.get());
  if (!status->signalled && status->code == 0) return written;
  return fail(ErrorCode::internal, "{} {}: {}", arguments.front(), status->describe(), written);
}

}  // namespace troupe
