#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/process/temporary_folder.hpp"

namespace troupe::tests {

/// A test's own folder, removed with all its files at the end. If it cannot be made, an exception
/// fails the test.
class TemporaryFolder {
 public:
  TemporaryFolder() : folder_(make()) {}

  const std::filesystem::path& path() const { return folder_.path(); }
  /// Writes a file in the folder and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    std::filesystem::path path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  /// The bytes of a file in the folder; empty if it cannot be read.
  std::string read(std::string_view name) const {
    std::ostringstream text;
    text << std::ifstream(folder_.path() / name, std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  static troupe::TemporaryFolder make() {
    auto folder = troupe::TemporaryFolder::create("troupe-test");
    if (!folder.ok()) throw std::runtime_error(folder.error().message);
    return *std::move(folder);
  }

  troupe::TemporaryFolder folder_;
};

}  // namespace troupe::tests
