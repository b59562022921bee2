#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/batch/input/line_reader.hpp"

namespace troupe {

/// A folder for each test, gone after it.
class TempFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("troupe_{}_{}", ::getpid(), test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(std::string_view name) const { return (folder_ / name).string(); }

  std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  static std::string read(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(name, std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path folder_;
};

/// The lines that a reader finds: number and text, or the one error with number 0.
using Lines = std::vector<std::pair<std::size_t, std::string>>;

inline Lines lines_of(const std::string& path, std::size_t limit) {
  Lines lines;
  auto reader = LineReader::open(path, "input", limit);
  if (!reader) return {{0, reader.error().message}};
  for (;;) {
    auto line = reader->next();
    if (!line) return {{0, line.error().message}};
    if (!*line) return lines;
    lines.emplace_back((*line)->number, (*line)->too_long ? "<too long>" : (*line)->text);
  }
}

}  // namespace troupe
