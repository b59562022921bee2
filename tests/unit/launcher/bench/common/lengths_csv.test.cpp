#include "launcher/bench/common/lengths_csv.hpp"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_folder.hpp"

namespace troupe {
namespace {

using golden::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

Result<std::vector<RequestLengths>> read(const std::string& text, std::size_t most = 100) {
  const TemporaryFolder folder;
  return read_lengths_csv(folder.write("w.csv", text), most);
}

std::string message(const std::string& text) {
  const auto requests = read(text);
  return requests.ok() ? fmt::format("{} requests", requests->size()) : requests.error().message;
}

TEST(LengthsCsv, are_read_line_by_line_up_to_as_many_as_are_wanted) {
  const std::string text = "prompt_tokens,max_tokens\n964,845\n1,16777216\r\n\n7,8";
  const RequestLengths first{964, 845, 2};
  const auto requests = read(text);
  ASSERT_TRUE(requests.ok()) << requests.error().message;
  EXPECT_THAT(*requests,
              ElementsAre(first, RequestLengths{1, 16'777'216, 3}, RequestLengths{7, 8, 5}));
  EXPECT_THAT(*read(text, 1), ElementsAre(first));
  EXPECT_THAT(*read("3,4\n"), ElementsAre(RequestLengths{3, 4, 1}));
}

TEST(LengthsCsv, are_refused_with_the_line_of_the_mistake) {
  EXPECT_THAT(message(""), HasSubstr("w.csv has no requests"));
  EXPECT_THAT(message("prompt_tokens,max_tokens\n"), HasSubstr("w.csv has no requests"));
  for (const char* line : {"3", "3,", ",3", "3,0", "3,-1", "3,x", "3,1.5", "3,16777217",
                           "3,99999999999", "3, 4", "3,4,5", "max_tokens,prompt_tokens"}) {
    EXPECT_THAT(
        message(fmt::format("1,2\n{}\n", line)),
        HasSubstr(fmt::format("w.csv:2: expected two numbers of tokens, found \"{}\"", line)));
  }
  const TemporaryFolder folder;
  const auto missing = read_lengths_csv(folder.path() / "none.csv", 1);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("none.csv"));
}

}  // namespace
}  // namespace troupe
