#include "tests/support/checkpoint_folder.hpp"

#include <cstring>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

namespace troupe::golden {

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes.append(header).append(data);
}

std::string safetensors_bytes(const std::map<std::string, RawTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0) text += ' ';
  return safetensors_bytes(text, data);
}

std::map<std::string, RawTensor> read_all(const Checkpoint& checkpoint) {
  std::map<std::string, RawTensor> tensors;
  for (const std::string& name : checkpoint.names()) {
    const auto tensor = checkpoint.tensor(name);
    if (!tensor.ok()) continue;
    RawTensor raw;
    raw.dtype = tensor->dtype() == DType::f32 ? "F32" : "BF16";
    for (int i = 0; i < tensor->shape().rank(); ++i) raw.shape.push_back((*tensor)[i]);
    raw.bytes.assign(static_cast<const char*>(tensor->data()), tensor->bytes());
    tensors.emplace(name, std::move(raw));
  }
  return tensors;
}

}  // namespace troupe::golden
