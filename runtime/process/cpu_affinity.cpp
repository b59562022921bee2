#include "runtime/process/cpu_affinity.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include <sched.h>

namespace troupe {
namespace {

/// Reads a number at the begin of `text` and removes it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

bool bind_all_threads(const cpu_set_t& cpus) {
  std::error_code problem;
  bool bound = false;
  for (std::filesystem::directory_iterator thread("/proc/self/task", problem), end;
       !problem && thread != end; thread.increment(problem)) {
    const int id = std::stoi(thread->path().filename().string());
    bound = ::sched_setaffinity(id, sizeof cpus, &cpus) == 0 || bound;
  }
  return bound;
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view list) {
  std::vector<int> cpus;
  for (std::string_view rest = list; !rest.empty();) {
    const auto first = take_number(rest);
    const auto last = first && take(rest, '-') ? take_number(rest) : first;
    if (!last || *last < *first || *last >= CPU_SETSIZE || (!rest.empty() && !take(rest, ','))) {
      return fail(ErrorCode::invalid_argument, "'{}' is not a list of CPUs", list);
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  std::array<cpu_set_t, 8> own{};  // the kernel has at most 8,192
  if (::sched_getaffinity(0, sizeof own, own.data()) < 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE * static_cast<int>(own.size()); ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof own, own.data())) cpus.push_back(cpu);
  }
  return cpus;
}

int usable_cpu_count() { return std::max(1, static_cast<int>(usable_cpus().size())); }

std::vector<int> cpus_near(const std::filesystem::path& device) {
  std::ifstream file(device / "local_cpulist");
  std::string list;
  std::getline(file, list);
  auto cpus = parse_cpu_list(list);
  return cpus.ok() ? *std::move(cpus) : std::vector<int>();
}

std::optional<int> bind_to_cpus_near(const std::filesystem::path& device) {
  cpu_set_t own, both;
  CPU_ZERO(&both);
  if (::sched_getaffinity(0, sizeof own, &own) != 0) return std::nullopt;
  for (const int cpu : cpus_near(device)) {
    if (CPU_ISSET(cpu, &own)) CPU_SET(cpu, &both);
  }
  const int left = CPU_COUNT(&both);
  if (left == 0 || left == CPU_COUNT(&own) || !bind_all_threads(both)) return std::nullopt;
  return left;
}

}  // namespace troupe
