#include "runtime/troupe/answer.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include <unistd.h>

#include "runtime/base/host_name.hpp"

namespace troupe {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string age(std::int64_t since_ms) {
  const std::int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count();
  const std::int64_t seconds = now_ms <= since_ms ? 0 : (now_ms - since_ms) / 1000;
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

std::string iso_time(std::int64_t ms) {
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "";
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

const Columns<ClusterFile>& cluster_columns() {
  using File = ClusterFile;
  static const Columns<File> columns{
      both<File>("NAME", "name", &File::name),
      both<File>("HOST", "host", &File::host),
      both<File>("PID", "pid", [](const File& file) { return file.driver.pid; }),
      both<File>(
          "UP", "since", [](const File& file) { return iso_time(file.since_ms); },
          [](const File& file) { return age(file.since_ms); }),
      both<File>(
          "PROGRAM", "program", &File::program,
          [](const File& file) { return std::filesystem::path(file.program).filename().string(); }),
      in_json<File>("id", &File::id),
      in_json<File>("address", &File::address),
      in_json<File>("port", &File::port),
  };
  return columns;
}

void print_json(const ClusterFile& cluster,
                std::initializer_list<std::pair<std::string_view, std::string>> members) {
  JsonObject json;
  json.add_json("cluster", json_object(cluster_columns(), cluster).text());
  for (const auto& [key, value] : members) json.add_json(key, value);
  print(json.text() + "\n");
}

std::string own_description() {
  return fmt::format("process {} of uid {} on {}", ::getpid(), ::geteuid(), host_name());
}

}  // namespace troupe
