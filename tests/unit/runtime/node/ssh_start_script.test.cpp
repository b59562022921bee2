#include "runtime/node/ssh_start_script.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/process/shell_word.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* build = "b417d";

/// A host's shell with a home of its own, and the archive of a program that tells its build.
class StartScript : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(home());
    must_run(
        "mkdir -p p/bin && printf '#!/bin/sh\\n[ \"$1\" = --troupe-process=build ] && echo b417d "
        "|| echo \"started $1 in $PWD with $A\" >&2\\n' >p/bin/program && "
        "chmod 755 p/bin/program && tar --create --file=archive --directory=p bin && "
        "{ echo $(stat -c %s archive) $(sha256sum <archive | cut -d' ' -f1); cat archive; } "
        ">input");
  }

  fs::path home() const { return folder_.path() / "it's a home"; }
  fs::path programs() const { return home() / ".cache/troupe/programs"; }
  /// Runs a command in the test's folder.
  void must_run(const std::string& command) const {
    const std::string in_folder =
        fmt::format("cd {} && {{ {}; }}", shell_word(folder_.path().string()), command);
    ASSERT_EQ(std::system(in_folder.c_str()), 0) << command;
  }

  struct Said {
    std::string out, err;
  };
  /// What the start command says, with a file of the test's folder as its input.
  Said start(const std::string& input = "input", const std::string& tag = "",
             const std::string& variables = "") const {
    const std::string command = ssh_start_command({.program = "/nowhere/program",
                                                   .build = build,
                                                   .copy = build,
                                                   .folder = home(),
                                                   .environment = {"A=a b'c"}});
    const std::string line = fmt::format(
        "cd {} && cat {} | (unset XDG_CACHE_HOME; export HOME={} {}; {}) >out{} 2>err{}",
        shell_word(folder_.path().string()), input, shell_word(home().string()), variables, command,
        tag, tag);
    (void)std::system(line.c_str());
    return {folder_.read("out" + tag), folder_.read("err" + tag)};
  }
  std::size_t count_in_programs(std::string_view begin) const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(programs())) {
      count += entry.path().filename().string().starts_with(begin) ? 1 : 0;
    }
    return count;
  }

  const tests::TemporaryFolder folder_;
};

TEST_F(StartScript, copies_a_program_once_and_starts_it) {
  const Said first = start();
  EXPECT_EQ(first.out, "troupe: absent\ntroupe: ready\n") << first.err;
  EXPECT_EQ(first.err,
            fmt::format("started --troupe-process=agent in {} with a b'c\n", home().string()));
  EXPECT_EQ(start("/dev/null").out, "troupe: ready\n");
  EXPECT_EQ(count_in_programs(".part"), 0U);
}

TEST_F(StartScript, refuses_what_did_not_arrive_whole) {
  must_run("head -c 2000 input >short");
  must_run("sed '1s/.$/x/' input >changed");
  for (const char* input : {"short", "changed"}) {
    EXPECT_THAT(start(input).out, HasSubstr("failed: the copy did not arrive whole")) << input;
    EXPECT_EQ(count_in_programs(""), 0U) << input;
  }
}

TEST_F(StartScript, refuses_to_copy_where_it_is_told_not_to) {
  must_run("echo none - >none");
  EXPECT_THAT(start("none").out, HasSubstr("failed: no program of this build at /nowhere/program"));
  EXPECT_FALSE(fs::exists(programs()));
}

TEST_F(StartScript, makes_a_copy_that_does_not_start_anew) {
  start();
  must_run("printf '' >\"it's a home/.cache/troupe/programs/b417d/bin/program\"");
  EXPECT_EQ(start().out, "troupe: absent\ntroupe: ready\n");
  EXPECT_EQ(start("/dev/null").out, "troupe: ready\n");
}

TEST_F(StartScript, lets_two_copy_at_once) {
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) must_run("printf '' >\"it's a home/.cache/troupe/programs/b417d/bin/program\"");
    std::vector<Said> said(4);
    std::vector<std::thread> starts;
    for (std::size_t i = 0; i < said.size(); ++i) {
      starts.emplace_back([&, i] { said[i] = start("input", std::to_string(i)); });
    }
    for (auto& one : starts) one.join();
    for (const Said& one : said) EXPECT_THAT(one.out, HasSubstr("troupe: ready")) << one.err;
    EXPECT_EQ(count_in_programs(".part"), 0U);
  }
}

TEST_F(StartScript, removes_what_nobody_uses_any_more) {
  fs::create_directories(programs());
  fs::permissions(programs(), fs::perms::owner_all);
  must_run(
      "cd \"it's a home/.cache/troupe/programs\" && mkdir old used .part-elsewhere-1 && "
      "mkdir .part-$(cat /proc/sys/kernel/random/boot_id)-$(readlink /proc/self/ns/pid | "
      "tr -dc 0-9)-999999 && touch -d '40 days ago' old");
  EXPECT_THAT(start().out, HasSubstr("ready"));
  EXPECT_FALSE(fs::exists(programs() / "old"));
  EXPECT_TRUE(fs::exists(programs() / "used"));
  EXPECT_EQ(count_in_programs(".part"), 1U) << "another machine may still be copying";
}

TEST_F(StartScript, trusts_no_folder_that_others_may_write) {
  start();
  for (const fs::path& shared : {programs(), programs().parent_path(), home() / ".cache"}) {
    fs::permissions(shared, fs::perms::group_write, fs::perm_options::add);
    EXPECT_THAT(start().out, HasSubstr(fmt::format("failed: others may write {}: chmod go-w it",
                                                   shared.string())));
    fs::permissions(shared, fs::perms::group_write, fs::perm_options::remove);
  }
  EXPECT_EQ(start("/dev/null").out, "troupe: ready\n");
}

TEST_F(StartScript, uses_the_cache_that_the_user_has_named) {
  must_run("mkdir -m 700 cache");
  const std::string cache = folder_.path().string() + "/cache";
  EXPECT_THAT(start("input", "", "XDG_CACHE_HOME=" + shell_word(cache)).out, HasSubstr("ready"));
  EXPECT_TRUE(fs::exists(cache + "/troupe/programs/b417d/bin/program"));
  EXPECT_FALSE(fs::exists(programs()));
}

}  // namespace
}  // namespace troupe
