#include "runtime/node/join_token.hpp"

#include <barrier>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

class JoinToken : public testing::Test {
 protected:
  std::filesystem::path folder() const { return folder_.path(); }
  std::string path() const { return (folder_.path() / "job.token").string(); }
  void write(const std::string& text) const { std::ofstream(path()) << text; }

 private:
  TemporaryFolder folder_ = *TemporaryFolder::create("troupe-token");
};

TEST_F(JoinToken, is_made_once_and_for_its_owner_alone) {
  EXPECT_EQ(read_join_token(path()).error().code, ErrorCode::not_found);
  const auto made = read_or_make_join_token(path());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_NE(made->bytes, Key{});
  struct stat file{};
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600U);
  EXPECT_EQ(read_or_make_join_token(path())->bytes, made->bytes);
  EXPECT_EQ(read_join_token(path())->bytes, made->bytes);
}

TEST_F(JoinToken, is_whole_for_all_who_make_and_read_it_at_once) {
  constexpr int rounds = 200, makers = 4, readers = 2;
  for (int round = 0; round < rounds; ++round) {
    const std::string token = path() + std::to_string(round);
    std::barrier begin(makers + readers);
    std::vector<Result<SecretKey>> found(makers + readers, SecretKey());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < makers + readers; ++i) {
        threads.emplace_back([&, i] {
          begin.arrive_and_wait();
          do {
            found[i] = i < makers ? read_or_make_join_token(token) : read_join_token(token);
          } while (!found[i].ok() && found[i].error().code == ErrorCode::not_found);
        });
      }
    }
    for (const auto& key : found) {
      ASSERT_TRUE(key.ok()) << "round " << round << ": " << key.error().message;
      EXPECT_EQ(key->bytes, found[0]->bytes) << "round " << round;
    }
  }
  const auto files = std::filesystem::directory_iterator(folder());
  EXPECT_EQ(std::distance(begin(files), end(files)), rounds) << "something else was left there";
}

TEST_F(JoinToken, that_others_can_read_or_write_is_refused) {
  ASSERT_TRUE(read_or_make_join_token(path()).ok());
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U}) {
    ASSERT_EQ(::chmod(path().c_str(), mode), 0);
    const auto refused = read_join_token(path());
    ASSERT_FALSE(refused.ok()) << mode;
    EXPECT_EQ(refused.error().code, ErrorCode::permission_denied);
    EXPECT_THAT(refused.error().message, HasSubstr("chmod 600"));
    EXPECT_THAT(refused.error().message, HasSubstr(path()));
  }
}

TEST_F(JoinToken, of_another_form_is_refused_and_left_as_it_is) {
  for (const std::string text : {"", "troupe-token 1 abc\n", "troupe-token 2 ", "secret"}) {
    write(text);
    ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
    EXPECT_EQ(read_or_make_join_token(path()).error().code, ErrorCode::invalid_argument) << text;
    EXPECT_EQ(std::filesystem::file_size(path()), text.size());
  }
}

TEST_F(JoinToken, that_cannot_be_made_says_where) {
  const auto made = read_or_make_join_token(path() + "/nowhere/token");
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("nowhere/token"));
}

}  // namespace
}  // namespace troupe
