#include "models/checkpoint/checkpoint_writer.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <future>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "models/checkpoint/safetensors_header.hpp"
#include "runtime/base/write_all.hpp"

namespace troupe {
namespace {

std::string upper(std::string_view name) {
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

/// The file's first bytes: the length of the header, then the header.
std::string header_of(std::span<const NamedTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    std::vector<std::int64_t> extents;
    for (int i = 0; i < tensor.shape().rank(); ++i) extents.push_back(tensor[i]);
    header[name] = {{"dtype", upper(to_string(tensor.dtype()))},
                    {"shape", extents},
                    {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  return safetensors_header(header);
}

Result<void> write_file(const std::filesystem::path& path, std::span<const NamedTensor> tensors) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return fail_errno(errno, fmt::format("cannot make {}", path.string()));
  const std::string header = header_of(tensors);
  const auto write = [file](const void* data, std::size_t bytes) {
    return write_all(file, {static_cast<const std::byte*>(data), bytes}, "cannot write");
  };
  Result<void> written = write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    if (written.ok()) written = write(tensor.data(), tensor.bytes());
  }
  if (::close(file) != 0 && written.ok()) written = fail_errno(errno, "cannot write");
  if (written.ok()) return {};
  return fail(written.error().code, "{}: {}", path.string(), written.error().message);
}

/// Splits tensors into runs of about `shard_bytes`.
std::vector<std::span<const NamedTensor>> shards_of(std::span<const NamedTensor> tensors,
                                                    std::uint64_t shard_bytes) {
  std::vector<std::span<const NamedTensor>> shards;
  while (!tensors.empty()) {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    while (count < tensors.size() && (count == 0 || bytes < shard_bytes)) {
      bytes += tensors[count++].tensor.bytes();
    }
    shards.push_back(tensors.first(count));
    tensors = tensors.subspan(count);
  }
  return shards;
}

}  // namespace

Result<void> write_checkpoint(const std::filesystem::path& folder,
                              std::span<const NamedTensor> tensors, std::uint64_t shard_bytes) {
  const auto shards = shards_of(tensors, shard_bytes);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::vector<std::future<Result<void>>> writing;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const auto& [name, tensor] : shards[i]) map[name] = file;
    writing.push_back(std::async(std::launch::async, write_file, folder / file, shards[i]));
  }
  for (auto& written : writing) TROUPE_CHECK(written.get());
  const auto index = folder / "model.safetensors.index.json";
  std::ofstream file(index, std::ios::trunc);
  file << nlohmann::ordered_json{{"weight_map", map}}.dump() << "\n";
  file.close();
  if (file) return {};
  return fail(ErrorCode::io, "cannot write {}", index.string());
}

}  // namespace troupe
