#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/process/temporary_folder.hpp"

namespace troupe::tests {

/// A folder of a test's own, removed with all its files at the end; that it cannot be made is an
/// exception, which fails the test.
class TemporaryFolder {
 public:
  TemporaryFolder() : folder_(make()) {}

  const std::filesystem::path& path() const { return folder_.path(); }
  /// Writes a file in it and gives its path.
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    std::filesystem::path path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
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
