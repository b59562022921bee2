#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Reads the bytes of a file from `offset` on, as many as there is room for. Errors: io, also if
/// the file ends before, with `what` in front ("cannot read FILE").
Result<void> read_all_at(int file, std::span<std::byte> bytes, std::uint64_t offset,
                         std::string_view what);

}  // namespace troupe
