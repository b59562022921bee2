#include "models/ops/cuda/gemm/tuning_file.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace troupe {
namespace {

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::optional<TuningFile::Line> parse(const std::string& text) {
  std::istringstream words(text);
  GemmKind kind;
  cublasLtMatmulAlgo_t algorithm{};
  std::string in, out;
  words >> kind.n >> kind.k >> kind.rows >> kind.segments >> in >> out >> std::hex;
  for (auto& word : algorithm.data) words >> word;
  const auto in_dtype = dtype_of_name(in), out_dtype = dtype_of_name(out);
  if (!words || !in_dtype || !out_dtype || kind.n < 1 || kind.k < 1 || kind.rows < 1 ||
      kind.segments < 1) {
    return std::nullopt;
  }
  kind.in = *in_dtype;
  kind.out = *out_dtype;
  const bool is_none = std::ranges::all_of(algorithm.data, [](auto word) { return word == 0; });
  return TuningFile::Line{kind, is_none ? std::nullopt : std::optional(algorithm)};
}

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return cache;
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.cache";
  }
  return {};
}

}  // namespace

TuningFile TuningFile::of_user(std::string_view what) {
  const std::string folder = cache_folder();
  int device = 0;
  cudaDeviceProp properties{};
  if (folder.empty() || cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return TuningFile("");
  }
  std::string name = properties.name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
  return TuningFile(
      fmt::format("{}/troupe/{}-{}-cublaslt-{}.txt", folder, what, name, cublasLtGetVersion()));
}

std::vector<TuningFile::Line> TuningFile::read() const {
  std::vector<Line> lines;
  if (path_.empty()) return lines;
  std::ifstream file(path_);
  for (std::string text; std::getline(file, text);) {
    if (const auto line = parse(text)) lines.push_back(*line);
  }
  return lines;
}

void TuningFile::append(const Line& line) const {
  if (path_.empty()) return;
  const GemmKind& kind = line.kind;
  std::string text = fmt::format("{} {} {} {} {} {}", kind.n, kind.k, kind.rows, kind.segments,
                                 to_string(kind.in), to_string(kind.out));
  const cublasLtMatmulAlgo_t algorithm = line.algorithm.value_or(cublasLtMatmulAlgo_t{});
  for (const auto word : algorithm.data) text += fmt::format(" {:x}", word);
  text += "\n";
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  if (std::FILE* file = std::fopen(path_.c_str(), "ae"); file != nullptr) {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
}

}  // namespace troupe
