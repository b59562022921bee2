#pragma once
#include <filesystem>
#include <string_view>

namespace troupe::test {

/// The path of a file or folder of the source tree that the tests were built from, such as
/// "tests/data/text". The tree's root, without an argument.
std::filesystem::path source_path(std::string_view relative = "");

}  // namespace troupe::test
