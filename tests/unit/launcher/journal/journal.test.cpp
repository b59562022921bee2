#include "launcher/journal/journal.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/batch/input/line_reader.hpp"
#include "launcher/batch/output/answer_format.hpp"
#include "runtime/base/content_mark.hpp"
#include "tests/unit/launcher/journal/output_lines.hpp"

namespace troupe::journal_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / fmt::format("troupe_{}_{}", ::getpid(), test->name());
    fs::create_directories(folder_ / "out.jsonl.job");
    write(input(), "requests\n");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::string input() const { return path("in.jsonl"); }
  std::string output() const { return path("out.jsonl"); }
  std::string fingerprint() const { return path("out.jsonl.job/fingerprint.json"); }

  static void write(const std::string& file, std::string_view text) {
    std::ofstream(file, std::ios::binary) << text;
  }
  static std::string read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }

  JournalOptions options(ResumeMode mode = ResumeMode::automatic) const {
    return {.output = output(), .input = input(), .mode = mode};
  }
  static Fingerprint job(std::string seed, std::int64_t created = 100) {
    return {.identity = {.id = 0xABCD, .created = created},
            .parts = {{"the input", "9 bytes"}, {"job.seed", std::move(seed)}}};
  }
  Result<Journal> open(ResumeMode mode, Fingerprint fingerprint) const {
    return Journal::open(options(mode), std::move(fingerprint));
  }
  /// Runs a job with this fingerprint that writes `lines`.
  void run(const Fingerprint& fingerprint, const std::vector<std::string>& lines,
           ResumeMode mode = ResumeMode::automatic) const {
    auto journal = open(mode, fingerprint);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    ASSERT_TRUE(journal->begin().ok());
    for (const std::string& line : lines) ASSERT_TRUE(journal->append(line).ok());
    ASSERT_TRUE(journal->finish().ok());
  }

 private:
  fs::path folder_;
};

TEST_F(JournalTest, counts_what_was_answered_and_appends_behind_it) {
  run(job("0"), {answer("a"), error_line(2, std::nullopt), answer("c")});
  const std::string before = read(output());
  auto journal = open(ResumeMode::automatic, job("0", 200));
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  EXPECT_EQ(journal->lines_before(), 3U);
  EXPECT_EQ(journal->errors_before().count, 1U);
  EXPECT_EQ(journal->errors_before().by_code.at("invalid_json"), 1U);
  EXPECT_EQ(journal->errors_before().first->message, "no } \"object\"");
  EXPECT_TRUE(journal->same_job());
  EXPECT_EQ(journal->identity().created, 100) << "answers of one file have one time";
  LineIds ids = journal->take_ids();
  EXPECT_EQ(ids.meet("a"), LineIds::Met::answered);
  EXPECT_EQ(ids.meet("b"), LineIds::Met::first);
  EXPECT_TRUE(ids.has_error(2, std::nullopt));
  EXPECT_EQ(read(output()), before) << "opening must not change the output";
  ASSERT_TRUE(journal->begin().ok());
  ASSERT_TRUE(journal->append(answer("b")).ok());
  EXPECT_EQ(read(output()), before + answer("b") + "\n");
}

TEST_F(JournalTest, cuts_off_whatever_was_torn) {
  const std::string whole = answer("a") + "\n" + answer("b") + "\n";
  const std::string last = answer("c");
  run(job("0"), {});
  for (std::size_t size = 0; size <= last.size(); ++size) {
    write(output(), whole + last.substr(0, size));
    const auto past = read_past_answers(output());
    ASSERT_TRUE(past.ok()) << past.error().message;
    const bool complete = size == last.size();  // only its newline is missing
    EXPECT_EQ(past->lines, 2U) << "torn at " << size;
    EXPECT_EQ(past->whole_bytes, whole.size()) << "torn at " << size << (complete ? " (end)" : "");
  }
  write(output(), whole + std::string(5000, '\0'));
  EXPECT_EQ(read_past_answers(output())->whole_bytes, whole.size())
      << "zeros, as after a power cut";
  write(output(), whole + last.substr(0, 40) + "}\n");
  EXPECT_EQ(read_past_answers(output())->whole_bytes, whole.size())
      << "a last line that is no JSON";
  run(job("0"), {answer("d")});
  EXPECT_EQ(read(output()), whole + answer("d") + "\n");
}

TEST_F(JournalTest, refuses_an_output_with_strange_lines_in_the_middle) {
  run(job("0"), {answer("a")});
  write(output(), answer("a") + "\nsomething else\n" + answer("b") + "\n");
  const auto journal = open(ResumeMode::automatic, job("0"));
  ASSERT_FALSE(journal.ok());
  EXPECT_EQ(journal.error().code, ErrorCode::corrupt_data);
  EXPECT_THAT(journal.error().message, HasSubstr("line 2 of the output"));
  EXPECT_THAT(journal.error().message, HasSubstr("--overwrite"));
  const std::string first = answer("a") + "\n";
  EXPECT_THAT(journal.error().message,
              HasSubstr(fmt::format("truncate -s {} '{}'", first.size(), output())));
  fs::resize_file(output(), first.size());
  EXPECT_EQ(open(ResumeMode::automatic, job("0"))->lines_before(), 1U);
  write(output(), "no answer at all\n" + first);
  EXPECT_THAT(open(ResumeMode::automatic, job("0")).error().message,
              testing::Not(HasSubstr("truncate")));
}

TEST_F(JournalTest, leaves_an_output_alone_that_others_have_written_since_it_was_read) {
  for (const std::string& before : {std::string(), answer("a") + "\n"}) {
    run(job("0"), {}, ResumeMode::overwrite);
    write(output(), before);
    auto journal = open(ResumeMode::automatic, job("0"));
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    const std::string theirs = before + answer("theirs") + "\n";
    write(output(), theirs);
    const auto begun = journal->begin();
    ASSERT_FALSE(begun.ok());
    EXPECT_THAT(begun.error().message, HasSubstr("was written by others"));
    EXPECT_EQ(read(output()), theirs);
  }
}

TEST_F(JournalTest, refuses_packed_content_under_a_plain_name) {
  run(job("0"), {answer("a")});
  std::string packed;
  ASSERT_TRUE(append_member(Compression::gzip, read(output()), packed).ok());
  write(output(), packed);
  const auto journal = open(ResumeMode::automatic, job("0"));
  ASSERT_FALSE(journal.ok());
  EXPECT_THAT(journal.error().message, HasSubstr("does not end in .gz or .zst"));
}

TEST_F(JournalTest, with_a_name_too_long_for_its_folder_is_refused_by_open_alone) {
  JournalOptions long_name = options();
  long_name.output = path(std::string(253, 'x'));
  write(long_name.output, answer("a") + "\n");
  EXPECT_TRUE(check_journal(long_name).ok());
  EXPECT_FALSE(Journal::open(long_name, job("0")).ok());
}

TEST_F(JournalTest, reads_packed_outputs_to_their_last_whole_member) {
  for (const Compression packing : {Compression::gzip, Compression::zstd}) {
    const std::string file = path(packing == Compression::gzip ? "o.gz" : "o.zst");
    std::string first;
    std::string second;
    ASSERT_TRUE(append_member(packing, answer("a") + "\n" + answer("b") + "\n", first).ok());
    ASSERT_TRUE(append_member(packing, answer("c") + "\n", second).ok());
    write(file, first + second.substr(0, second.size() - 1));
    auto past = read_past_answers(file);
    ASSERT_TRUE(past.ok()) << past.error().message;
    EXPECT_EQ(past->lines, 2U);
    EXPECT_EQ(past->whole_bytes, first.size());
    EXPECT_EQ(past->ids.meet("c"), LineIds::Met::first);
    write(file, first + second);
    EXPECT_EQ(read_past_answers(file)->lines, 3U);
    std::string strange;
    ASSERT_TRUE(append_member(packing, "no answer\n", strange).ok());
    write(file, first + strange);
    EXPECT_THAT(read_past_answers(file).error().message, HasSubstr("line 3 of the output"));
  }
}

TEST_F(JournalTest, says_what_is_not_as_it_was_and_goes_on_when_forced) {
  run(job("0"), {answer("a")});
  const std::string before = read(output());
  const auto refused = open(ResumeMode::automatic, job("1"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("job.seed was 0, is 1"));
  EXPECT_THAT(refused.error().message, HasSubstr("--resume=force"));
  EXPECT_THAT(refused.error().message, testing::Not(HasSubstr("the input was")));
  EXPECT_EQ(read(output()), before);
  run(job("1", 200), {answer("b")}, ResumeMode::force);
  EXPECT_EQ(read(output()), before + answer("b") + "\n");
  const auto kept = read_fingerprint(fingerprint());
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->identity.created, 100);
  EXPECT_EQ(kept->identity.id, 0xABCDU);
  EXPECT_TRUE(open(ResumeMode::automatic, job("1")).ok())
      << "the forced job is the one there is now";
}

TEST_F(JournalTest, of_another_version_is_refused_with_that_reason_even_when_forced) {
  run(job("0"), {answer("a")});
  const std::string ours = read(fingerprint());
  const std::string format = fmt::format("\"format\": {},", journal_format);
  const std::size_t place = ours.find(format);
  ASSERT_NE(place, ours.npos) << ours;
  for (const auto& [theirs, version] :
       {std::pair{"", "version 0.1.0"}, {"\"format\": 99,", "later"}}) {
    std::string text = ours;
    write(fingerprint(), text.replace(place, format.size(), theirs));
    for (const ResumeMode mode : {ResumeMode::automatic, ResumeMode::force}) {
      const auto refused = open(mode, job("0"));
      ASSERT_FALSE(refused.ok()) << version;
      EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
      EXPECT_THAT(refused.error().message, HasSubstr(version));
      EXPECT_THAT(refused.error().message, HasSubstr("--overwrite"));
    }
  }
  run(job("0"), {answer("b")}, ResumeMode::overwrite);
  EXPECT_EQ(read(fingerprint()), ours);
}

TEST_F(JournalTest, refuses_content_that_nobody_vouches_for) {
  write(output(), "precious\n");
  for (const ResumeMode mode : {ResumeMode::automatic, ResumeMode::never}) {
    const auto looked = check_journal(options(mode));
    ASSERT_FALSE(looked.ok());
    EXPECT_EQ(looked.error().code, ErrorCode::already_exists);
    EXPECT_THAT(looked.error().message, HasSubstr("--overwrite"));
    EXPECT_FALSE(open(mode, job("0")).ok());
  }
  EXPECT_EQ(read(output()), "precious\n");
  run(job("0"), {answer("a")}, ResumeMode::overwrite);
  EXPECT_EQ(read(output()), answer("a") + "\n");
  EXPECT_FALSE(check_journal(options(ResumeMode::never)).ok());
  EXPECT_TRUE(check_journal(options()).ok());
}

TEST_F(JournalTest, leaves_an_output_alone_until_it_begins) {
  run(job("0"), {answer("a")});
  {
    const auto journal = open(ResumeMode::overwrite, job("1"));
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_EQ(journal->lines_before(), 0U);
  }
  EXPECT_EQ(read(output()), answer("a") + "\n");
  EXPECT_TRUE(open(ResumeMode::automatic, job("0")).ok()) << "the fingerprint is the old one too";
  fs::remove(output());
  ASSERT_TRUE(open(ResumeMode::automatic, job("1")).ok());
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(JournalTest, asks_error_lines_again_and_takes_them_out_of_the_output) {
  const std::vector<std::string> lines = {
      answer("a"), format_error({2, "invalid_json", "x", std::nullopt}, {}), answer("c"),
      format_error({4, "model_not_found", "y", "d"}, {}), answer("e")};
  const std::string without_d =
      lines[0] + "\n" + lines[1] + "\n" + lines[2] + "\n" + lines[4] + "\n";
  for (const bool all : {false, true}) {
    run(job("0"), lines, ResumeMode::overwrite);
    const std::string before = read(output());
    JournalOptions again = options();
    again.retry_errors = all ? RetriedCodes{} : RetriedCodes{"model_not_found", "other"};
    auto journal = Journal::open(again, job("0"));
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_EQ(journal->retried(), all ? 2U : 1U);
    EXPECT_EQ(journal->lines_before(), all ? 3U : 4U);
    EXPECT_EQ(journal->errors_before().count, all ? 0U : 1U);
    EXPECT_EQ(read(output()), before) << "opening must not change the output";
    LineIds ids = journal->take_ids();
    EXPECT_EQ(ids.meet("d"), LineIds::Met::first);
    ASSERT_TRUE(journal->begin().ok());
    ASSERT_TRUE(journal->append(answer("d")).ok());
    ASSERT_TRUE(journal->finish().ok());
    EXPECT_EQ(read(output()),
              (all ? lines[0] + "\n" + lines[2] + "\n" + lines[4] + "\n" : without_d) +
                  answer("d") + "\n");
    EXPECT_EQ(std::distance(fs::directory_iterator(path("")), {}), 3)
        << "nothing is left beside it";
  }
}

TEST_F(JournalTest, refuses_to_ask_error_lines_again_behind_ordered_answers) {
  JournalOptions again = options();
  again.retry_errors = RetriedCodes{};
  again.ordered = true;
  const auto refused = check_journal(again);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("--set job.ordered=false"));
  again.ordered = false;
  EXPECT_TRUE(check_journal(again).ok());
}

TEST_F(JournalTest, asks_again_in_packed_outputs) {
  JournalOptions packed = options();
  packed.output = path("o.zst");
  fs::create_directories(path("o.zst.job"));
  const std::string busy = format_error({4, "not_finite", "y", "d"}, {});
  auto first = Journal::open(packed, job("0"));
  ASSERT_TRUE(first.ok() && first->begin().ok());
  for (const std::string& line : {answer("a"), busy}) ASSERT_TRUE(first->append(line).ok());
  ASSERT_TRUE(first->finish().ok());
  first = fail(ErrorCode::io, "let go of the lock");
  packed.retry_errors.emplace();
  auto journal = Journal::open(packed, job("0"));
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  EXPECT_EQ(journal->retried(), 1U);
  ASSERT_TRUE(journal->begin().ok());
  ASSERT_TRUE(journal->append(answer("d")).ok());
  ASSERT_TRUE(journal->finish().ok());
  const auto past = read_past_answers(packed.output);
  ASSERT_TRUE(past.ok()) << past.error().message;
  EXPECT_EQ(past->lines, 2U);
  EXPECT_EQ(past->errors.count, 0U);
}

TEST_F(JournalTest, tells_of_weights_that_were_written_since_with_the_same_content) {
  Fingerprint before = job("0");
  before.weight_times = {{"model.safetensors", "Monday"}};
  run(before, {answer("a")});
  EXPECT_TRUE(open(ResumeMode::automatic, before)->warnings().empty());
  Fingerprint now = job("0");
  now.weight_times = {{"model.safetensors", "Tuesday"}};
  const auto journal = open(ResumeMode::automatic, now);
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  EXPECT_THAT(journal->warnings(),
              testing::ElementsAre(HasSubstr("model.safetensors was written at Tuesday")));
}

TEST_F(JournalTest, has_no_folder_beside_what_is_no_file) {
  EXPECT_EQ(job_folder_of(output()), output() + ".job");
  EXPECT_EQ(job_folder_of("-"), "");
  EXPECT_EQ(job_folder_of("/dev/null"), "");
}

TEST_F(JournalTest, keeps_a_second_job_off_and_says_who_has_it) {
  const auto first = open(ResumeMode::automatic, job("0"));
  ASSERT_TRUE(first.ok());
  for (const ResumeMode mode : {ResumeMode::automatic, ResumeMode::overwrite, ResumeMode::force}) {
    const auto second = open(mode, job("0"));
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.error().message, HasSubstr(fmt::format("pid {} on ", ::getpid())));
  }
}

TEST_F(JournalTest, with_a_pipe_is_not_resumable_and_says_so) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  for (const std::string& pipe : {std::string("-"), path("fifo")}) {
    JournalOptions from = options();
    from.input = pipe;
    EXPECT_TRUE(check_journal(from).ok());
    from.must_be_resumable = true;
    const auto refused = check_journal(from);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("--resume: the input"));
    JournalOptions to = options();
    to.output = pipe;
    EXPECT_TRUE(check_journal(to).ok());
    to.must_be_resumable = true;
    EXPECT_THAT(check_journal(to).error().message, HasSubstr("--resume: the output"));
  }
  run(job("0"), {answer("a")});
  JournalOptions from = options();
  from.input = path("fifo");
  EXPECT_THAT(check_journal(from).error().message, HasSubstr("an input that is no file"));
}

TEST_F(JournalTest, is_not_read_to_its_end_when_that_is_not_wanted_any_more) {
  run(job("0"), {answer("a"), answer("b")});
  JournalOptions impatient = options();
  impatient.keep_waiting = [] { return false; };
  EXPECT_EQ(Journal::open(impatient, job("0")).error().code, ErrorCode::cancelled);
  EXPECT_EQ(content_mark(output(), impatient.keep_waiting).error().code, ErrorCode::cancelled);
  EXPECT_EQ(count_lines(output(), {}, impatient.keep_waiting).error().code, ErrorCode::cancelled);
}

TEST_F(JournalTest, with_a_broken_fingerprint_is_refused) {
  run(job("0"), {answer("a")});
  for (const char* text : {"", "{}", "[1]", R"({"job_id":"xyz","created":1})",
                           R"({"job_id":"1","created":1,"answers_depend_on":{"a":1}})"}) {
    write(fingerprint(), text);
    const auto journal = open(ResumeMode::automatic, job("0"));
    ASSERT_FALSE(journal.ok()) << text;
    EXPECT_THAT(journal.error().message, HasSubstr("is no fingerprint")) << text;
  }
}

}  // namespace
}  // namespace troupe::journal_test
