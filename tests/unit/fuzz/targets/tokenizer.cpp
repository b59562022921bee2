#include "models/text/tokenizer.hpp"

#include <fstream>
#include <map>

#include "models/text/detokenizer.hpp"
#include "models/text/string_replace.hpp"
#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::ordered_json;

std::filesystem::path text_data(const std::string& name) {
  return std::filesystem::path(TROUPE_SOURCE_DIR) / "tests/data/text" / name;
}

/// The tokenizer.json with few enough tokens that thousands are read in a second.
ordered_json small_tokenizer(const std::string& name) {
  constexpr std::size_t max_merges = 40;
  ordered_json file =
      ordered_json::parse(golden::file_bytes(text_data(name) / "tokenizer.json"), nullptr, false);
  auto& model = file["model"];
  ordered_json& merges = model["merges"];
  merges.erase(merges.begin() + std::min<std::ptrdiff_t>(max_merges, std::ssize(merges)),
               merges.end());
  // The alphabet, and what the merges left make.
  ordered_json vocabulary = ordered_json::object();
  for (const auto& [token, id] : model["vocab"].items()) {
    const bool is_byte = token.size() == 6 && token.starts_with("<0x");
    if (is_byte || text::count_code_points(token) == 1) vocabulary[token] = id;
  }
  for (const auto& merge : merges) {
    const auto token = merge[0].get<std::string>() + merge[1].get<std::string>();
    vocabulary[token] = model["vocab"][token];
  }
  if (model["unk_token"].is_string()) {
    const auto unknown = model["unk_token"].get<std::string>();
    vocabulary[unknown] = model["vocab"][unknown];
  }
  model["vocab"] = std::move(vocabulary);
  return file;
}

void use(const Tokenizer& tokenizer, Mutator& mutator) {
  const std::string texts[] = {mutator.text(), "It's 1234 o'clock:  <|im_start|> a<extra word>\n\n",
                               std::string(300, 'a')};
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text, true);
    if (ids.ok()) tokenizer.decode(*ids, mutator.one_in(2));
  }
  Detokenizer detokenizer(tokenizer, mutator.one_in(2));
  for (int i = 0; i < 20; ++i) {
    const auto id = static_cast<std::int32_t>(mutator.below(500));
    ASSERT_TRUE(text::is_valid_utf8(detokenizer.push(id))) << "id " << id;
  }
  EXPECT_TRUE(text::is_valid_utf8(detokenizer.flush()));
}

}  // namespace

void changed_tokenizers(Effort effort) {
  const golden::TemporaryFolder folder;
  std::vector<ordered_json> files;
  for (const char* name : {"fable", "llama3-style", "spm-style"}) {
    files.push_back(small_tokenizer(name));
    folder.write("tokenizer.json", files.back().dump());
    REQUIRE_OK(const auto unchanged, Tokenizer::load(folder.path()));
  }
  std::size_t loaded = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    ordered_json file = files[mutator.below(files.size())];
    for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) {
      // Not in vocabulary and merges only, which are most of the file.
      ordered_json& section =
          mutator.one_in(3)
              ? file
              : *std::next(file.begin(), static_cast<std::ptrdiff_t>(mutator.below(file.size())));
      mutator.json(section);
      if (!file.is_object() || file.empty()) break;
    }
    std::string bytes = file.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    if (mutator.one_in(10)) bytes = mutator.bytes(bytes);
    folder.write("tokenizer.json", bytes);
    const auto tokenizer = Tokenizer::load(folder.path());
    if (!tokenizer.ok()) return;
    ++loaded;
    use(*tokenizer, mutator);
  });
  EXPECT_GT(loaded, 0U) << "no changed tokenizer was taken: the changes are too coarse";
}

void texts_and_back(Effort effort) {
  std::map<std::string, Tokenizer> tokenizers;
  for (const char* name : {"fable", "llama3-style", "spm-style"}) {
    REQUIRE_OK(auto tokenizer, Tokenizer::load(text_data(name)));
    tokenizers.emplace(name, std::move(tokenizer));
  }
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string text;
    for (const char c : mutator.text()) {
      if (c != '<') text += c;  // what added tokens begin with
    }
    for (const auto& [name, tokenizer] : tokenizers) {
      const bool sentence_piece = name == "spm-style";
      std::string expected = name == "fable" ? text::normalize(text, text::NormalForm::nfc) : text;
      if (sentence_piece) {
        // Its sign for a space is one that a text may have.
        expected = text::replace_all(expected, "\u2581", " ");
      }
      REQUIRE_OK(const Ids ids, tokenizer.encode(text, false));
      EXPECT_EQ(tokenizer.decode(ids, false), expected) << name << ": " << text;
      std::string joined;
      Detokenizer detokenizer(tokenizer, false);
      for (const std::int32_t id : ids) {
        ASSERT_LT(id, tokenizer.vocab_size());
        const std::string piece = detokenizer.push(id);
        EXPECT_TRUE(text::is_valid_utf8(piece)) << name << ": half a character in " << text;
        joined += piece;
      }
      EXPECT_EQ(joined + detokenizer.flush(), expected) << name;
      const std::string broken = mutator.bytes(text);
      EXPECT_EQ(tokenizer.encode(broken, true).ok(), text::is_valid_utf8(broken)) << name;
    }
  });
}

}  // namespace troupe::fuzz
