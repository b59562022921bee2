#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "launcher/batch/output/answer_format.hpp"
#include "launcher/compression/compression.hpp"
#include "launcher/journal/fingerprint.hpp"
#include "launcher/journal/past_answers.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

constexpr std::string_view words[] = {
    "\n", "}\n", "{\"id\":\"", "\",\"custom_id\":", "null", ",\"line\":18446744073709551616",
    "\\", "\"",  "\\u0000"};

std::string output_text() {
  std::string text;
  for (std::size_t i = 1; i <= 6; ++i) {
    RequestHeader header;
    header.line = i;
    header.custom_id = fmt::format("request \"{}\"", i);
    Completion completion;
    completion.choices.resize(1);
    completion.choices[0].text = "a } \\ text\n";
    text += i % 3 == 0 ? format_error({i, "invalid_json", "why", std::nullopt}, {})
                       : format_answer(header, completion, {});
    text += '\n';
  }
  return text;
}

}  // namespace

void changed_outputs(Effort effort) {
  const golden::TemporaryFolder folder;
  const std::string plain = output_text();
  std::size_t read = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    constexpr Compression packings[] = {Compression::none, Compression::gzip, Compression::zstd};
    constexpr const char* names[] = {"out.jsonl", "out.gz", "out.zst"};
    const std::size_t kind = mutator.below(std::size(packings));
    std::string text;
    if (mutator.one_in(2)) {
      EXPECT_TRUE(append_member(packings[kind], plain, text).ok());
      EXPECT_TRUE(append_member(packings[kind], plain.substr(plain.size() / 2), text).ok());
      text = mutator.bytes(text);
    } else {
      EXPECT_TRUE(append_member(packings[kind], mutator.bytes(plain, words), text).ok());
    }
    const std::string path = (folder.path() / names[kind]).string();
    std::ofstream(path, std::ios::binary) << text;
    const auto past = read_past_answers(path);
    if (!past.ok()) {
      EXPECT_FALSE(past.error().message.empty());
      return;
    }
    ++read;
    EXPECT_LE(past->whole_bytes, text.size());
    EXPECT_LE(past->errors.count, past->lines);
    EXPECT_EQ(past->lines, past->ids.size());
    // The kept part is whole, except for a last line that was not the last before.
    std::filesystem::resize_file(path, past->whole_bytes);
    const auto again = read_past_answers(path);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_LE(again->lines, past->lines);
    EXPECT_GE(again->lines + 1, past->lines);
  });
  EXPECT_GT(read, 0U);
}

void changed_fingerprints(Effort effort) {
  const golden::TemporaryFolder folder;
  const std::string path = (folder.path() / "fingerprint.json").string();
  Fingerprint original;
  original.identity = {.id = 7, .created = 9};
  original.parts = {{"job.seed", "0"}, {"the input", "3 bytes"}};
  ASSERT_TRUE(write_fingerprint(path, original).ok());
  const std::string text = golden::file_bytes(path);
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::ofstream(path, std::ios::binary) << mutator.bytes(text, words);
    const auto read = read_fingerprint(path);
    if (read.ok()) return;
    EXPECT_NE(read.error().message.find(path), std::string::npos) << read.error().message;
  });
}

}  // namespace troupe::fuzz
