#include "launcher/submit/sbatch_script.hpp"

#include <gmock/gmock.h>

#include "runtime/process/run_program.hpp"
#include "runtime/process/shell_word.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::Not;

SbatchJob stories() {
  return {.name = "old stories",
          .folder = "/work",
          .launcher = "/opt/troupe/bin/launcher",
          .arguments = {"--config", "it's.yaml"},
          .input = "in.jsonl",
          .output = "/data/answers.jsonl.gz",
          .grace_seconds = 25,
          .array = 0,
          .sbatch = {}};
}

TEST(SbatchScript, asks_for_no_more_notice_than_slurm_gives) {
  SbatchJob job = stories();
  job.grace_seconds = 86400;
  EXPECT_THAT(sbatch_script(job), HasSubstr("--signal=B:USR1@65535\n"));
}

TEST(ShellWord, is_one_word_again_for_a_shell) {
  for (const std::string word : {"plain", "", "two words", "it's", "$HOME `id` \\ \"x\"", "*"}) {
    REQUIRE_OK(const std::string echoed,
               run_program({"bash", "-c", "printf '%s|' " + shell_word(word)}, "",
                           std::chrono::seconds(10)));
    EXPECT_EQ(echoed, word + "|");
  }
}

TEST(NameOfShards, stands_before_all_endings_of_the_file) {
  const ShardName name = name_of_shards("/data/my.answers/out.jsonl.gz", 12);
  EXPECT_EQ(name.before, "/data/my.answers/out-");
  EXPECT_EQ(name.after, "-of-00012.jsonl.gz");
  EXPECT_EQ(name_of_shards("/data/out", 2).after, "-of-00002");
}

TEST(SbatchScript, lets_the_users_options_override_its_own_which_stand_before_them) {
  SbatchJob job = stories();
  job.sbatch = {"--nodes=4", "--signal=B:TERM@5", "--comment=two words"};
  const std::string script = sbatch_script(job);
  const auto own = script.find("#SBATCH --signal=B:USR1@85");
  const auto given = script.find("#SBATCH --nodes=4 --signal=B:TERM@5 '--comment=two words'");
  ASSERT_NE(own, script.npos) << script;
  ASSERT_NE(given, script.npos) << script;
  EXPECT_LT(own, given);
  EXPECT_LT(given, script.find("\ncd ")) << "sbatch reads options up to the first command";
}

TEST(SbatchScript, keeps_the_percent_signs_of_a_path_from_sbatch) {
  SbatchJob job = stories();
  job.output = "/data/50%j/%A.jsonl";
  const std::string script = sbatch_script(job);
  EXPECT_THAT(script, HasSubstr("#SBATCH --output=/data/50%%j/%%A.jsonl.slurm-%j.log\n"));
  EXPECT_THAT(script, HasSubstr("\noutput=/data/50%j/%A.jsonl\n"));
}

TEST(SbatchScript, is_a_script_without_mistakes_of_syntax) {
  for (const int array : {0, 3}) {
    SbatchJob job = stories();
    job.array = array;
    const auto checked = run_program({"bash", "-n"}, sbatch_script(job), std::chrono::seconds(10));
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }
}

TEST(SbatchScript, of_an_array_gives_each_task_a_shard_and_an_output_of_its_own) {
  SbatchJob job = stories();
  EXPECT_THAT(sbatch_script(job), Not(HasSubstr("shard")));
  job.array = 3;
  const std::string script = sbatch_script(job);
  EXPECT_THAT(script, HasSubstr("#SBATCH --array=0-2\n"));
  EXPECT_THAT(script, HasSubstr("output=/data/answers-\"$shard\"-of-00003.jsonl.gz\n"));
  EXPECT_THAT(script, HasSubstr("--set job.num_shards=3 "
                                "--set job.shard_index=\"$SLURM_ARRAY_TASK_ID\""));
}

}  // namespace
}  // namespace troupe
