#include "runtime/base/content_mark.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

TEST(ContentMark, samples_tell_large_files_apart_that_differ_in_a_stretch) {
  const tests::TemporaryFolder folder;
  const std::string file = folder.write("large", "x");
  std::filesystem::resize_file(file, std::uint64_t{40} << 20);  // zeros
  const std::string mark = *sampled_mark(file);
  EXPECT_EQ(*sampled_mark(file), mark);
  for (const std::uint64_t place :
       {std::uint64_t{0}, std::uint64_t{17} << 20, std::uint64_t{39} << 20}) {
    std::fstream change(file, std::ios::binary | std::ios::in | std::ios::out);
    change.seekp(static_cast<std::streamoff>(place));
    change << std::string(200'000, 'y');
    change.close();
    EXPECT_NE(*sampled_mark(file), mark) << "changed at " << place;
  }
  EXPECT_FALSE(sampled_mark(folder.path() / "none").ok());
}

TEST(ContentMark, tells_files_apart) {
  const tests::TemporaryFolder folder;
  const std::string a = folder.write("a", std::string(3 << 20, 'x'));
  const std::string mark = *content_mark(a);
  EXPECT_THAT(mark, testing::HasSubstr(fmt::format("{} bytes", 3 << 20)));
  EXPECT_EQ(*content_mark(a), mark);
  for (const std::size_t place : {0, 1 << 20, (3 << 20) - 1}) {
    std::string text(3 << 20, 'x');
    text[place] = 'y';
    EXPECT_NE(*content_mark(folder.write("b", text)), mark) << "changed at " << place;
  }
  EXPECT_EQ(*sampled_mark(a), mark) << "a small file is looked at as a whole";
  EXPECT_FALSE(content_mark(folder.path() / "none").ok());
}

}  // namespace
}  // namespace troupe
