#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {

/// Reads a file of the job's folder as JSON; if it is none, fails the test and returns null.
inline nlohmann::json job_file(const LauncherJob& job, std::string_view name) {
  std::ifstream file(fmt::format("{}.job/{}", job.output().string(), name));
  nlohmann::json value = nlohmann::json::parse(file, nullptr, false);
  if (value.is_discarded()) {
    ADD_FAILURE() << name << " is not there, or no JSON";
    return nullptr;
  }
  return value;
}

/// Arguments that set these keys.
inline std::vector<std::string> settings(std::initializer_list<std::string> values) {
  std::vector<std::string> arguments;
  for (const std::string& value : values) arguments.insert(arguments.end(), {"--set", value});
  return arguments;
}

/// `count` chats of different lengths that are answered with 8 to 23 tokens each.
inline std::string some_requests(int count) {
  std::string input;
  for (int i = 0; i < count; ++i) {
    std::string prompt = "The fox and the crow";
    for (int more = 0; more < i % 7; ++more) prompt += " met again";
    input += completion(fmt::format("r{}", i), prompt,
                        {{"max_tokens", 8 + i % 16}, {"ignore_eos", true}, {"temperature", 0}});
  }
  return input;
}

}  // namespace troupe::launcher_test
