#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Runs another program (looked up in PATH) with `input` as its stdin and returns what it wrote.
/// Nothing goes through files or arguments that others could read. Errors: not_found without such a
/// program; timeout, after which it is killed; internal with what it wrote if its exit code is not
/// 0.
Result<std::string> run_program(const std::vector<std::string>& arguments, std::string_view input,
                                std::chrono::milliseconds timeout);

}  // namespace troupe
