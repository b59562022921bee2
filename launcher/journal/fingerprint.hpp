#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/batch/output/answer_format.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Grows whenever ids, seeds or lines of the same job would be written in another way. 1: version
/// 0.1.0, which did not record it.
inline constexpr int journal_format = 2;

/// What the answers of a job depend on, in words that can be compared and shown: its input, model,
/// seed, limits. Topology and hosts are no part of it. Kept beside the output, so that a job that
/// is gone on with gives its answers the same ids and times, and a changed one is noticed.
struct Fingerprint {
  struct Part {
    std::string name;   ///< how messages call it, e.g. "job.seed"
    std::string value;  ///< e.g. "0"
    bool operator==(const Part&) const = default;
  };
  JobIdentity identity;
  std::vector<Part> parts;  ///< names occur once
  /// The files of the weights with the times of their last change, which decide nothing: their
  /// content is looked at in samples only.
  std::vector<Part> weight_times;
};

/// A sentence for each part that is not the same: "job.seed was 0, is 1".
std::vector<std::string> differences(const Fingerprint& before, const Fingerprint& now);

/// A sentence for each file of weights that was written since, or copied: its samples are the same.
std::vector<std::string> rewritten_weights(const Fingerprint& before, const Fingerprint& now);

/// Reads the file at `path`. Errors: not_found; corrupt_data; unsupported for one of another
/// journal_format, with the version that wrote it.
Result<Fingerprint> read_fingerprint(const std::string& path);

/// Replaces the file at `path` as a whole, on the disk when this returns. Errors: io.
Result<void> write_fingerprint(const std::string& path, const Fingerprint& fingerprint);

/// "SIZE bytes, hash HASH" of a file's content (hash_128). Errors: io; cancelled.
Result<std::string> content_mark(const std::string& path, const KeepGoing& keep_going = nullptr);

/// The same of a large file of which only samples are read: its first MiB and 256 pieces of 4 KiB,
/// evenly spaced to its end. A file of up to 16 MiB is read as a whole. Errors: io.
Result<std::string> sampled_mark(const std::string& path);

}  // namespace troupe
