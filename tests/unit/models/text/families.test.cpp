#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "models/text/detokenizer.hpp"
#include "models/text/tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/text/text_data.hpp"

// Recorded from transformers 4.57.6 by tests/data/text/families/record.py: small tokenizers in the
// style of each model family, beside the configuration files that its checkpoints have.

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::ordered_json;

/// A row of variants.jsonl: the name, tokenizer.json's style, the other files, and the results.
struct Variant {
  ordered_json row;

  friend void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.row["name"]; }
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (auto& row : tests::read_rows(tests::text_data("families") / "variants.jsonl"))
    all.push_back({std::move(row)});
  return all;
}

class Family : public testing::TestWithParam<Variant> {
 protected:
  Result<Tokenizer> load() const {
    const ordered_json& row = GetParam().row;
    const auto style = row["style"].get<std::string>() + ".tokenizer.json";
    std::filesystem::copy_file(tests::text_data("families") / style,
                               folder_.path() / "tokenizer.json");
    // Transformers converts the Llama class from it if add_prefix_space is given.
    if (row["style"].get<std::string>().starts_with("spm")) folder_.write("tokenizer.model", "");
    for (const auto& [name, content] : row["files"].items()) folder_.write(name, content.dump());
    return Tokenizer::load(folder_.path());
  }

  tests::TemporaryFolder folder_;
};

TEST_P(Family, has_the_prompt_ids_and_texts_of_the_reference) {
  const ordered_json& row = GetParam().row;
  const auto tokenizer = load();
  if (row.contains("refused")) {
    ASSERT_FALSE(tokenizer.ok()) << "the reference refuses it: " << row["refused"];
    EXPECT_EQ(tokenizer.error().code, ErrorCode::corrupt_data);
    return;
  }
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto eos = tokenizer->eos_id();
  EXPECT_EQ(eos ? ordered_json(*eos) : ordered_json(), row["eos_id"]);
  for (const ordered_json& prompt : row["prompts"]) {
    const auto text = prompt["text"].get<std::string>();
    for (const bool add_special_tokens : {false, true}) {
      const auto ids = tokenizer->encode(text, add_special_tokens);
      ASSERT_TRUE(ids.ok()) << text << ": " << ids.error().message;
      EXPECT_EQ(*ids, prompt[add_special_tokens ? "ids" : "plain"].get<Ids>())
          << testing::PrintToString(text) << (add_special_tokens ? ", with" : ", without")
          << " special tokens";
    }
  }
  for (const ordered_json& pair : row["answers"]) {
    const Ids prompt = pair["prompt"], answer = pair["answer"];
    for (const bool skip : {false, true}) {
      const std::string key = skip ? "skipped" : "shown";
      EXPECT_EQ(tokenizer->decode(answer, skip), pair[key + "_alone"].get<std::string>())
          << key << ": " << pair;
      if (!pair.contains(key)) continue;  // the prompt ends within a character
      EXPECT_EQ(tokenizer->decode(answer, skip, prompt), pair[key].get<std::string>())
          << key << ": " << pair;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Family, testing::ValuesIn(variants()), [](const auto& info) {
  std::string name = info.param.row["name"];
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace troupe
