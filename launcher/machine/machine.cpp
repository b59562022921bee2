#include "launcher/machine/machine.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/ops/device/device.hpp"
#include "runtime/base/available_memory.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// GPUs of compute capability 9.0, with the memory that CUDA reports for them.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 6> hopper_gpus = {{
    {"H100", 81'079 * mib},
    {"H100-NVL", 95'320 * mib},
    {"H200", 143'167 * mib},
    {"H800", 81'079 * mib},
    {"H20", 97'280 * mib},
    {"GH200", 97'280 * mib},
}};
constexpr std::array<std::string_view, 9> older_gpus = {"A100", "A800", "A10",  "A30", "A40",
                                                        "L4",   "L40",  "L40S", "V100"};
constexpr int max_gpus = 1024;

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

/// Bytes of "80GB", "80G" (powers of 1000) or "80GiB" (of 1024).
std::optional<std::uint64_t> memory_size(const std::string& upper_text) {
  double number = 0;
  const char* const begin = upper_text.data();
  const char* const end = begin + upper_text.size();
  const auto [unit, error] = std::from_chars(begin, end, number);
  const std::string_view rest(unit, static_cast<std::size_t>(end - unit));
  if (error != std::errc() || !(number >= 1 && number <= 1e6)) return std::nullopt;
  if (rest == "GB" || rest == "G") return static_cast<std::uint64_t>(number * 1e9);
  if (rest == "GIB") return static_cast<std::uint64_t>(number * static_cast<double>(1 << 30));
  return std::nullopt;
}

std::string known_gpus() {
  std::string names;
  for (const auto& [name, memory] : hopper_gpus) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace

Gpus find_gpus() {
  const auto count = count_gpus();  // an error says that the CUDA part is missing
  if (!count.ok() || *count <= 0) return {};
  const auto memory = gpu_memory_bytes();
  return {.count = *count, .memory_bytes = memory.ok() ? *memory : 0};
}

Machine this_machine(const std::optional<Gpus>& assumed) {
  return {.cores = usable_cpu_count(),
          .free_memory_bytes = available_memory_bytes().value_or(0),
          .gpus = assumed ? *assumed : find_gpus()};
}

Result<Gpus> parse_gpus(std::string_view text) {
  if (text == "none") return Gpus{.assumed = true};
  const auto colon = text.find(':');
  const std::string kind = upper(text.substr(0, colon));
  Gpus gpus{.count = 1, .assumed = true};
  if (colon != text.npos) {
    const std::string_view count = text.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(count.data(), count.data() + count.size(), gpus.count);
    if (error != std::errc() || end != count.data() + count.size() || gpus.count < 1 ||
        gpus.count > max_gpus) {
      return fail(ErrorCode::invalid_argument, "expected how many behind the colon, as in H200:8");
    }
  }
  if (const auto size = memory_size(kind)) {
    gpus.memory_bytes = *size;
    return gpus;
  }
  const auto known =
      std::ranges::find(hopper_gpus, kind, [](const auto& gpu) { return gpu.first; });
  if (known != hopper_gpus.end()) {
    gpus.memory_bytes = known->second;
    return gpus;
  }
  if (std::ranges::find(older_gpus, kind) != older_gpus.end()) {
    return fail(ErrorCode::unsupported,
                "this version runs on GPUs of compute capability 9.0 (Hopper): {}", known_gpus());
  }
  return fail(ErrorCode::invalid_argument,
              "expected GPU:COUNT with one of {}, or a memory size such as 80GB:4, or none",
              known_gpus());
}

}  // namespace troupe
