#pragma once

#include <span>
#include <string_view>

namespace troupe::golden {

/// Fails the test unless both have the same bits; reports how many differ, and the first.
void expect_same_bits(std::span<const float> found, std::span<const float> expected,
                      std::string_view what);

}  // namespace troupe::golden
