#pragma once

#include <filesystem>

#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

/// Loads a quantised checkpoint in f32 with the numbers of its codes in their place. `rounds`: to
/// bf16 or f16, as the format's library and devices that hold numbers do; else as products of codes
/// take them.
Result<LoadedModel> load_numbers(const std::filesystem::path& folder, bool rounds);

/// True if the device multiplies codes in f32: the CPU.
bool multiplies_codes(const LoadedModel& loaded);

}  // namespace troupe::golden
