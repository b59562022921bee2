#include "runtime/base/character_width.hpp"

#include <algorithm>

#include <gtest/gtest.h>
#include <utf8proc.h>

namespace troupe {
namespace {

TEST(CharacterWidth, is_that_of_utf8proc_for_all_characters) {
  int wrong = 0;
  for (char32_t character = 0; character <= 0x10ffff; ++character) {
    const auto code_point = static_cast<utf8proc_int32_t>(character);
    const auto category = utf8proc_category(code_point);
    const bool is_character = category != UTF8PROC_CATEGORY_CN &&
                              category != UTF8PROC_CATEGORY_CC && category != UTF8PROC_CATEGORY_CS;
    const auto width = static_cast<std::size_t>(std::max(utf8proc_charwidth(code_point), 0));
    if (!is_character || width_of(character) == width) continue;
    if (++wrong > 10) break;
    ADD_FAILURE() << "U+" << std::hex << code_point << ": " << width_of(character) << ", not "
                  << width;
  }
}

TEST(CharacterWidth, is_one_for_controls) {
  for (const char32_t control : {U'\0', U'\n', U'\x1f', U'\x7f', U'\x9f'}) {
    EXPECT_EQ(width_of(control), 1U);
  }
}

}  // namespace
}  // namespace troupe
