#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Keeps other jobs out of a job's folder as long as it lives. The kernel releases it when the
/// process ends in any way; the file stays.
class JobLock {
 public:
  /// Locks the file `path` and writes pid and host into it. Errors: already_exists, with the
  /// holder's pid and host and `what` it is about; io.
  static Result<JobLock> take(const std::string& path, const std::string& what);

 private:
  explicit JobLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace troupe
