#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

// Measurements of what bounds the reading of weights. Rates are bytes per second.

/// The safetensors files of a folder. Errors: not_found if there are none.
Result<std::vector<std::filesystem::path>> weight_files(const std::filesystem::path& folder);

/// The number of reading threads.
int reading_threads();

/// The rate of reading all files into ordinary memory with `threads` threads. Errors: io.
Result<double> measure_reading(std::span<const std::filesystem::path> files, int threads);

/// Writes the files' pages to the disk and drops them from the page cache. Errors: io.
Result<void> drop_from_cache(std::span<const std::filesystem::path> files);

/// The rate of copying page-locked memory to the device of `ops`. Errors: those of Ops.
Result<double> measure_copy(Ops& ops);

}  // namespace troupe
