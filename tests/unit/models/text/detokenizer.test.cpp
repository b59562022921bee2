#include "models/text/detokenizer.hpp"

#include <random>

#include <gtest/gtest.h>

#include "models/text/unicode/utf8.hpp"
#include "tests/unit/models/text/text_data.hpp"

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;

class DetokenizerOfRandomIds : public testing::TestWithParam<const char*> {};

TEST_P(DetokenizerOfRandomIds, gives_pieces_that_join_to_the_decoded_text) {
  const auto tokenizer = Tokenizer::load(tests::text_data(GetParam()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::int32_t size = tokenizer->vocab_size();
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    // Half of the ids are low ones: the tokens of single bytes, most of them parts of characters.
    std::uniform_int_distribution<std::int32_t> any(-2, size + 2), low(0, 260);
    const bool skip_special = seed % 2 == 0;
    Detokenizer detokenizer(*tokenizer, skip_special);
    Ids ids;
    std::string joined;
    for (int i = 0; i < 100; ++i) {
      ids.push_back(random() % 2 ? any(random) : low(random));
      const std::string piece = detokenizer.push(ids.back());
      EXPECT_TRUE(text::is_valid_utf8(piece)) << "seed " << seed;
      joined += piece;
    }
    joined += detokenizer.flush();
    ASSERT_EQ(joined, tokenizer->decode(ids, skip_special)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DetokenizerOfRandomIds,
                         testing::Values("fable", "llama3-style", "spm-style"),
                         [](const auto& info) { return std::string(info.param, 3); });

TEST(Detokenizer, holds_a_character_back_until_its_last_byte) {
  const auto tokenizer = Tokenizer::load(tests::text_data("fable"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Detokenizer detokenizer(*tokenizer, true);
  // U+2019 in three byte tokens, then a byte that begins a character and a letter.
  EXPECT_EQ(detokenizer.push(158), "");
  EXPECT_EQ(detokenizer.push(222), "");
  EXPECT_EQ(detokenizer.push(247), "\u2019");
  EXPECT_EQ(detokenizer.push(158), "");
  EXPECT_EQ(detokenizer.push(13), "\uFFFD.");
  EXPECT_EQ(detokenizer.push(158), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
}

}  // namespace
}  // namespace troupe
