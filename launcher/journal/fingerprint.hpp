#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/batch/output/answer_format.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Incremented whenever ids, seeds or lines of the same job change their form. 1: version 0.1.0,
/// which did not record it.
inline constexpr int journal_format = 2;

/// Everything the answers of a job depend on, as text that can be compared and shown: its input,
/// model, seed, limits; not topology and hosts. Kept beside the output, so that a resumed job gives
/// its answers the same ids and times, and changes are noticed.
struct Fingerprint {
  struct Part {
    std::string name;   ///< its name in messages, e.g. "job.seed"
    std::string value;  ///< e.g. "0"
    bool operator==(const Part&) const = default;
  };
  JobIdentity identity;
  std::vector<Part> parts;  ///< names occur once
  /// The modification times of the weight files, used for warnings only: only samples of their
  /// content are compared.
  std::vector<Part> weight_times = {};
};

/// Returns a sentence for each part that differs: "job.seed was 0, is 1".
std::vector<std::string> differences(const Fingerprint& before, const Fingerprint& now);

/// Returns a sentence for each weight file that was written or copied since; its samples are the
/// same.
std::vector<std::string> rewritten_weights(const Fingerprint& before, const Fingerprint& now);

/// Reads the file at `path`. Errors: not_found; corrupt_data; unsupported for another
/// journal_format, with the version that wrote it.
Result<Fingerprint> read_fingerprint(const std::string& path);

/// Replaces the file at `path` atomically and syncs it to the disk. Errors: io.
Result<void> write_fingerprint(const std::string& path, const Fingerprint& fingerprint);

}  // namespace troupe
