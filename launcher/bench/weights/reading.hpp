#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

// What bounds the reading of weights. Rates are bytes per second.

/// The safetensors files of a folder. not_found if there are none.
Result<std::vector<std::filesystem::path>> weight_files(const std::filesystem::path& folder);

/// How many threads read at once.
int reading_threads();

/// The rate of reading all files into ordinary memory with `threads` threads. Errors: io.
Result<double> measure_reading(std::span<const std::filesystem::path> files, int threads);

/// Has the kernel forget the files' pages, after they are on the disk. Errors: io.
Result<void> drop_from_cache(std::span<const std::filesystem::path> files);

/// The rate of copying page-locked memory to the device of `ops`. Errors: those of Ops.
Result<double> measure_copy(Ops& ops);

}  // namespace troupe
