#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Keeps other jobs off a job's folder as long as it lives. The kernel lets go of it when the
/// process ends, however that is; the file stays.
class JobLock {
 public:
  /// Locks the file `path` and writes pid and host into it. Errors: already_exists, with the pid
  /// and host of who has it and `what` it is about; io.
  static Result<JobLock> take(const std::string& path, const std::string& what);

 private:
  explicit JobLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace troupe
