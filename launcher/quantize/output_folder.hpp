#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "launcher/journal/job_lock.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The folder that a checkpoint is made in, with a journal of its finished shards in a folder
/// `.quantize`, which goes at the end. One process at a time.
class OutputFolder {
 public:
  /// Makes the folder, or goes on with one that the same job has begun; `job` is all that its
  /// shards depend on: a JSON object of texts and numbers. Errors: already_exists for a folder with
  /// other things in it, a finished checkpoint, one of another job (with what differs), and one
  /// that another process works on; io.
  static Result<OutputFolder> open(const std::filesystem::path& path, const nlohmann::json& job);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path shard(std::int64_t number, std::int64_t count) const;

  /// The record of a shard; none if it is not finished.
  const nlohmann::json* finished(std::int64_t shard) const;
  /// Records that a shard is there, on the disk. Errors: io.
  Result<void> record(std::int64_t shard, const nlohmann::json& figures);

  /// Keeps the residual stream before a layer, and drops those before earlier ones. Errors: io.
  Result<void> save_hidden(std::int64_t layer, const Tensor& hidden);
  /// Reads it back. Errors: io; corrupt_data for another size.
  Result<void> load_hidden(std::int64_t layer, const Tensor& hidden) const;

  /// Removes what is left of the work. Errors: io.
  Result<void> finish();

 private:
  OutputFolder(std::filesystem::path path, JobLock lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  std::filesystem::path state() const { return path_ / ".quantize"; }
  std::filesystem::path hidden(std::int64_t layer) const;
  Result<void> read_journal();

  std::filesystem::path path_;
  std::optional<JobLock> lock_;
  std::map<std::int64_t, nlohmann::json> finished_;
};

}  // namespace troupe
