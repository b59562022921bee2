#include "actors/preflight/node_facts.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/device/device.hpp"
#include "runtime/base/available_memory.hpp"
#include "runtime/base/content_mark.hpp"
#include "runtime/process/cpu_affinity.hpp"
#include "runtime/process/open_files.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr MarkSamples checkpoint_samples{
    .whole_bytes = 128 << 10, .first_bytes = 64 << 10, .piece_bytes = 4096, .pieces = 16};

/// tokenizer.model is one although it is not read: tokenizer.json is read differently beside it.
bool is_of_a_model(const fs::path& file) {
  if (file.filename() == "tokenizer.model") return true;
  const auto extension = file.extension();
  return extension == ".safetensors" || extension == ".gguf" || extension == ".json" ||
         extension == ".jinja";
}

/// The version in the first line of the driver's file: "NVRM version: ... Kernel Module  550.54.15
/// ...".
std::string nvidia_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    const bool is_version =
        word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos;
    if (is_version) return word;
  }
  return "";
}

/// The path with "~/" replaced by the user's home, which the user database tells.
fs::path without_tilde(const std::string& path) {
  if (!path.starts_with("~/")) return fs::absolute(path);
  std::vector<char> buffer(16 << 10);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
  return fs::path(found == nullptr ? "/" : found->pw_dir) / path.substr(2);
}

/// Bytes that are free where the folder is or would be made.
std::uint64_t free_bytes_at(fs::path folder) {
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const auto space = fs::space(folder, error);
  return error ? 0 : space.available;
}

void look_at_stage(const FactsRequest& request, NodeFacts& facts) {
  if (request.stage_names.empty()) return;
  const fs::path folder = without_tilde(request.stage_folder).lexically_normal();
  facts.stage_disk_bytes = free_bytes_at(folder);
  for (const std::string& name : request.stage_names) {
    CheckpointFacts copy = look_at_checkpoint((folder / name).string());
    copy.distrust = other_writer_of((folder / name).string());
    facts.staged.push_back(std::move(copy));
  }
}

}  // namespace

std::string other_writer_of(const std::string& name) {
  const fs::path folder = name;
  struct stat found{};
  if (::lstat(folder.c_str(), &found) != 0) return "";
  struct stat place{};
  const fs::path parent = folder.parent_path();
  if (::stat(parent.c_str(), &place) == 0 && (place.st_mode & (S_IWGRP | S_IWOTH)) != 0 &&
      (place.st_mode & S_ISVTX) == 0) {
    return fmt::format("others may replace what is in {} (chmod +t keeps them from it)",
                       parent.string());
  }
  std::vector<fs::path> paths{folder};
  std::error_code error;
  for (fs::directory_iterator entry(folder, error);
       S_ISDIR(found.st_mode) && !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    paths.push_back(entry->path());
  }
  for (const fs::path& path : paths) {
    if (::lstat(path.c_str(), &found) != 0) continue;
    if (found.st_uid != ::geteuid() && found.st_uid != 0) {
      return fmt::format("{} belongs to another user (uid {})", path.string(), found.st_uid);
    }
    if (!S_ISLNK(found.st_mode) && (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      return fmt::format("others may write {}", path.string());
    }
  }
  return "";
}

std::uint64_t total_bytes(const CheckpointFacts& checkpoint) {
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files) bytes += file.bytes;
  return bytes;
}

CheckpointFacts look_at_checkpoint(const std::string& folder) {
  CheckpointFacts facts{.folder = folder, .files = {}, .problem = {}};
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code ignored;
    if (!is_of_a_model(path) || !fs::is_regular_file(path, ignored)) continue;
    auto mark = sampled_mark(path.string(), checkpoint_samples);
    if (!mark.ok()) {
      facts.problem = mark.error().message;
      return facts;
    }
    facts.files.push_back({path.filename().string(), fs::file_size(path, ignored), *mark});
  }
  if (error) facts.problem = error.message();
  std::ranges::sort(facts.files, {}, &CheckpointFile::name);
  return facts;
}

NodeFacts gather_facts(const FactsRequest& request) {
  NodeFacts facts;
  facts.cores = usable_cpu_count();
  facts.cpu = cpu_supports(CpuIsa::avx512) ? "avx512" : "avx2";
  facts.memory_bytes = available_memory_bytes().value_or(0);
  std::error_code error;
  facts.folder = fs::current_path(error).string();
  facts.disk_bytes = free_bytes_at(facts.folder);
  facts.open_files = open_file_limit();
  if (request.with_gpus) {
    const auto gpus = count_gpus();
    facts.gpus = gpus.ok() ? *gpus : 0;
    if (!gpus.ok()) facts.gpu_problem = gpus.error().message;
    facts.gpu_driver = nvidia_driver();
  }
  for (const std::string& folder : request.checkpoints) {
    facts.checkpoints.push_back(look_at_checkpoint(folder));
  }
  look_at_stage(request, facts);
  return facts;
}

}  // namespace troupe
