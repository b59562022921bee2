#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Changes when one of these files in the program's folder does (16 hexadecimal digits); empty if
/// none is there. Errors: io.
Result<std::string> mark_of_files(const std::vector<std::string>& names);

/// This process's program as a tar archive in memory, for hosts that do not have it:
/// bin/NAME, and in lib/troupe/ the libraries that it has loaded, but for those of C and C++, of
/// the GPU's driver and of sanitizers, which are the host's. Immutable; callable from any thread.
class ProgramArchive {
 public:
  /// Packs the program by tar(1). `beside`: names of files in the program's folder that go to bin/
  /// too, if they are there. Errors: not_found without tar; io.
  static Result<ProgramArchive> make(const std::vector<std::string>& beside);

  const std::string& program_name() const { return program_name_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& sha256() const { return sha256_; }  ///< hexadecimal
  /// Reads up to `size` bytes from `offset`; 0 at the end. Errors: io.
  Result<std::size_t> read(std::size_t offset, std::byte* to, std::size_t size) const;

 private:
  ProgramArchive(std::string program_name, UniqueFd file)
      : program_name_(std::move(program_name)), file_(std::move(file)) {}

  Result<void> measure();

  std::string program_name_;
  UniqueFd file_;  ///< a memfd
  std::size_t bytes_ = 0;
  std::string sha256_;
};

}  // namespace troupe
