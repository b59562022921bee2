#include "launcher/quantize/output_folder.hpp"

#include <cerrno>
#include <fstream>
#include <span>
#include <vector>

#include <fcntl.h>
#include <fmt/ranges.h>

#include "models/json/json_file.hpp"
#include "runtime/base/sync.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

constexpr std::string_view state_name = ".quantize";

Result<void> append_synced(const std::filesystem::path& path, const std::string& line) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) return fail_errno(errno, "cannot open " + path.string());
  TROUPE_CHECK(
      write_all(file.get(), std::as_bytes(std::span(line)), "cannot write " + path.string()));
  return sync_file(file.get(), path.string());
}

/// Refuses a folder that is not this job's.
Result<void> check_same_job(const std::filesystem::path& folder, const nlohmann::json& before,
                            const nlohmann::json& now) {
  std::vector<std::string> differences;
  for (const auto& [key, value] : now.items()) {
    const nlohmann::json was = before.value(key, nlohmann::json());
    if (was != value)
      differences.push_back(fmt::format("{} was {}, is {}", key, was.dump(), value.dump()));
  }
  if (differences.empty()) return {};
  return fail(ErrorCode::already_exists,
              "{} was begun by another command ({}): give that one again, or another --output, or "
              "remove it",
              folder.string(), fmt::join(differences, "; "));
}

/// Makes the folder unless it is there; errors for one that is not ours to fill.
Result<void> claim(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path / state_name, error)) return {};
  if (std::filesystem::exists(path, error)) {
    if (!std::filesystem::is_directory(path, error)) {
      return fail(ErrorCode::already_exists, "{} is a file: give another --output", path.string());
    }
    if (!std::filesystem::is_empty(path, error)) {
      const bool is_finished = std::filesystem::exists(path / "sensitive_layers.json", error);
      return fail(ErrorCode::already_exists, "{} {}: give another --output, or remove it",
                  path.string(),
                  is_finished ? "is a finished checkpoint already" : "has something else in it");
    }
  }
  std::filesystem::create_directories(path / state_name, error);
  if (!error) return {};
  return fail(ErrorCode::io, "cannot make {}: {}", path.string(), error.message());
}

}  // namespace

Result<OutputFolder> OutputFolder::open(const std::filesystem::path& path,
                                        const nlohmann::json& job) {
  TROUPE_CHECK(claim(path));
  TROUPE_TRY(JobLock lock, JobLock::take((path / state_name / "lock").string(), path.string()));
  OutputFolder folder(path, std::move(lock));
  const auto job_file = folder.state() / "job.json";
  std::error_code ignored;
  if (std::filesystem::exists(job_file, ignored)) {
    TROUPE_TRY(const nlohmann::json before, read_json_object(job_file));
    TROUPE_CHECK(check_same_job(path, before, job));
  } else {
    TROUPE_CHECK(write_synced(job_file.string(), job.dump(2) + "\n"));
  }
  TROUPE_CHECK(folder.read_journal());
  return folder;
}

Result<void> OutputFolder::read_journal() {
  std::ifstream file(state() / "journal.jsonl");
  for (std::string line; std::getline(file, line);) {
    // The last line of a process that was killed may be a part of one.
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("shard") || !entry.contains("figures")) continue;
    finished_[entry["shard"].get<std::int64_t>()] = entry["figures"];
  }
  return {};
}

std::filesystem::path OutputFolder::shard(std::int64_t number, std::int64_t count) const {
  return path_ / fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, count);
}

const nlohmann::json* OutputFolder::finished(std::int64_t shard) const {
  const auto found = finished_.find(shard);
  return found == finished_.end() ? nullptr : &found->second;
}

Result<void> OutputFolder::record(std::int64_t shard, const nlohmann::json& figures) {
  const nlohmann::json entry = {{"shard", shard}, {"figures", figures}};
  TROUPE_CHECK(append_synced(state() / "journal.jsonl", fmt::format("\n{}\n", entry.dump())));
  finished_[shard] = figures;
  return {};
}

std::filesystem::path OutputFolder::hidden(std::int64_t layer) const {
  return state() / fmt::format("hidden-{}.f32", layer);
}

Result<void> OutputFolder::save_hidden(std::int64_t layer, const Tensor& tensor) {
  const std::string_view bytes(static_cast<const char*>(tensor.data()), tensor.bytes());
  TROUPE_CHECK(write_synced(hidden(layer).string(), bytes));
  std::error_code ignored;
  for (std::int64_t before = layer - 2; before >= 0; --before) {
    if (!std::filesystem::remove(hidden(before), ignored)) break;
  }
  return {};
}

Result<void> OutputFolder::load_hidden(std::int64_t layer, const Tensor& tensor) const {
  std::ifstream file(hidden(layer), std::ios::binary);
  file.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes()));
  if (file && file.peek() == std::ifstream::traits_type::eof()) return {};
  return fail(ErrorCode::corrupt_data, "{} is not whole: remove {} and begin anew",
              hidden(layer).string(), path_.string());
}

Result<void> OutputFolder::finish() {
  lock_.reset();
  std::error_code error;
  std::filesystem::remove_all(state(), error);
  if (!error) return {};
  return fail(ErrorCode::io, "cannot remove {}: {}", state().string(), error.message());
}

}  // namespace troupe
