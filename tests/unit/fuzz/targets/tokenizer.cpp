#include "models/text/tokenizer.hpp"

#include <algorithm>
#include <fstream>
#include <map>

#include "models/text/chat_template.hpp"
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

constexpr std::string_view component_keys[] = {"normalizer",
                                               "pre_tokenizer",
                                               "post_processor",
                                               "decoder",
                                               "added_tokens",
                                               "type",
                                               "pattern",
                                               "behavior",
                                               "invert",
                                               "Regex",
                                               "String",
                                               "content",
                                               "prepend",
                                               "replacement",
                                               "prepend_scheme",
                                               "add_prefix_space",
                                               "use_regex",
                                               "split",
                                               "individual_digits",
                                               "single",
                                               "special_tokens",
                                               "ids",
                                               "start",
                                               "stop",
                                               "normalizers",
                                               "pretokenizers",
                                               "processors",
                                               "decoders",
                                               "unk_token",
                                               "byte_fallback",
                                               "fuse_unk",
                                               "ignore_merges",
                                               "merges",
                                               "vocab",
                                               "normalized",
                                               "single_word"};

/// Components that files may contain, some at their limits.
std::vector<ordered_json> components() {
  std::vector<ordered_json> all;
  for (
      const char* text : {
          R"({"type":"Prepend","prepend":"\u2581"})",
          R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})",
          R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})",
          R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":""})",
          R"({"type":"NFC"})",
          R"({"type":"NFKD"})",
          R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":true})",
          R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})",
          R"({"type":"Digits","individual_digits":true})",
          R"({"type":"ByteFallback"})",
          R"({"type":"Fuse"})",
          R"({"type":"Strip","content":" ","start":18446744073709551615,"stop":0})",
          R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
               {"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":
               {"<s>":{"id":"<s>","ids":[1,1,1],"tokens":["<s>"]}}})",
          R"({"type":"Sequence","normalizers":[],"pretokenizers":[],"processors":[],"decoders":[]})",
          R"([{"id":4194303,"content":"b","normalized":true,"single_word":true,"lstrip":true}])",
      }) {
    all.push_back(ordered_json::parse(text));
  }
  for (const char* behavior :
       {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    for (const char* regex : {"(a+)+$", "(a*)*b", "(?:a|aa)+$", "(?:a?){30}a{30}", "(?R)",
                              "(a|(?1)b)+", "", "$", "(?<=\\p{L})", "[\\s\\S]*?", "\\p{L}{1,1000}",
                              "((((((((((a))))))))))*", "(?:(?:\\p{L}|a)*)*[bd]", "\\w|\\W|\\h"}) {
      all.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", regex}}},
                     {"behavior", behavior},
                     {"invert", all.size() % 2 == 0}});
    }
  }
  return all;
}

/// Makes lists of components, some deep or long.
ordered_json sequence_of(std::span<const ordered_json> parts, Mutator& mutator) {
  ordered_json steps = ordered_json::array();
  for (std::size_t i = 0, count = mutator.below(mutator.one_in(20) ? 100 : 5); i < count; ++i)
    steps.push_back(mutator.one_of(parts));
  ordered_json sequence = {{"type", "Sequence"}};
  for (const char* key : {"normalizers", "pretokenizers", "processors", "decoders"})
    sequence[key] = steps;
  return sequence;
}

/// Occasionally inserts a nest that overflows the stack of recursive readers.
std::string with_nest(std::string bytes, Mutator& mutator) {
  constexpr std::size_t deepest = 400'000;
  if (!mutator.one_in(500)) return bytes;
  const std::size_t at = bytes.find(':', mutator.below(bytes.size() + 1));
  if (at == bytes.npos) return bytes;
  const std::size_t levels = 1 + mutator.below(deepest);
  std::string nest;
  for (std::size_t i = 0; i < levels; ++i) nest += mutator.one_in(2) ? "[" : "{\"a\":";
  return bytes.insert(at + 1, nest);
}

/// The tokenizer.json with so few tokens that thousands are read per second.
ordered_json small_tokenizer(const std::string& name) {
  constexpr std::size_t max_merges = 40;
  ordered_json file =
      ordered_json::parse(golden::file_bytes(text_data(name) / "tokenizer.json"), nullptr, false);
  auto& model = file["model"];
  ordered_json& merges = model["merges"];
  merges.erase(merges.begin() + std::min<std::ptrdiff_t>(max_merges, std::ssize(merges)),
               merges.end());
  // The alphabet, and the results of the remaining merges.
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
  Ids before, after;
  for (std::size_t i = mutator.below(6); i > 0; --i)
    before.push_back(static_cast<std::int32_t>(mutator.below(500)));
  Detokenizer detokenizer(tokenizer, mutator.one_in(2), before);
  for (int i = 0; i < 20; ++i) after.push_back(static_cast<std::int32_t>(mutator.below(500)));
  const auto places = detokenizer.places_of(after);
  EXPECT_TRUE(std::ranges::is_sorted(places)) << "a token is before the one before it";
  for (const std::int32_t id : after) {
    ASSERT_TRUE(text::is_valid_utf8(detokenizer.push(id))) << "id " << id;
  }
  EXPECT_TRUE(text::is_valid_utf8(detokenizer.flush()));
}

}  // namespace

void changed_tokenizers(Effort effort) {
  const golden::TemporaryFolder folder;
  const std::vector<ordered_json> parts = components();
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
      // Not only in vocabulary and merges, which are most of the file.
      ordered_json& section =
          mutator.one_in(3)
              ? file
              : *std::next(file.begin(), static_cast<std::ptrdiff_t>(mutator.below(file.size())));
      mutator.json(section);
      if (!file.is_object() || file.empty()) break;
    }
    if (file.is_object() && mutator.one_in(2)) {
      for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) {
        constexpr const char* places[] = {"normalizer", "pre_tokenizer", "post_processor",
                                          "decoder"};
        file[mutator.one_of<const char*>(places)] =
            mutator.one_in(2) ? sequence_of(parts, mutator) : mutator.one_of<ordered_json>(parts);
      }
      if (mutator.one_in(2)) mutator.set_key(file, component_keys, parts);
    }
    std::string bytes = file.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    if (mutator.one_in(10)) bytes = mutator.bytes(bytes);
    folder.write("tokenizer.json", with_nest(std::move(bytes), mutator));
    const auto tokenizer = Tokenizer::load(folder.path());
    if (!tokenizer.ok()) return;
    ++loaded;
    use(*tokenizer, mutator);
  });
  EXPECT_GT(loaded, 0U) << "no changed tokenizer was taken: the changes are too coarse";
}

void changed_tokenizer_configs(Effort effort) {
  constexpr std::string_view keys[] = {
      "tokenizer_class", "bos_token",     "eos_token",     "unk_token",
      "pad_token",       "add_bos_token", "add_eos_token", "add_prefix_space",
      "legacy",          "chat_template", "content",       "added_tokens_decoder",
      "normalized",      "special",       "lstrip",        "additional_special_tokens",
      "model_type",      "single_word",   "rstrip",        "0"};
  std::vector<ordered_json> values;
  for (
      const char* text :
      {R"("LlamaTokenizer")", R"("LlamaTokenizerFast")", R"("Qwen2Tokenizer")", R"("<s>")", R"("")",
       R"({"content":"<x>","lstrip":true,"single_word":true})", R"({"__type":"AddedToken"})",
       R"({"content":"a","special":true,"normalized":true})", "true", "false", "null",
       R"([{"name":"default","template":"{{ messages }}"}])",
       R"("{{ bos_token }}{% for m in messages %}")",
       R"({"4194303":{"content":"b"},"-1":{"content":"c"},"99999999999999999999":{"content":"d"}})"})
    values.push_back(ordered_json::parse(text));
  std::vector<ordered_json> rows;
  std::ifstream file(text_data("families") / "variants.jsonl");
  for (std::string line; std::getline(file, line);)
    rows.push_back(ordered_json::parse(line)["files"]);
  ASSERT_GT(rows.size(), 10U);
  const golden::TemporaryFolder folder;
  folder.write("tokenizer.model", "");
  folder.write("tokenizer.json", small_tokenizer("spm-style").dump());
  std::size_t loaded = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    const ordered_json& files = rows[mutator.below(rows.size())];
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "config.json"}) {
      std::filesystem::remove(folder.path() / name);
      if (!files.contains(name) && !mutator.one_in(4)) continue;
      ordered_json content = files.value(name, ordered_json::object());
      for (std::size_t i = mutator.below(4); i > 0; --i) mutator.json(content);
      for (std::size_t i = mutator.below(4); i > 0 && content.is_object(); --i)
        mutator.set_key(content, keys, values);
      std::string bytes = content.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
      if (mutator.one_in(10)) bytes = mutator.bytes(bytes);
      folder.write(name, with_nest(std::move(bytes), mutator));
    }
    const auto chat = ChatTemplate::load(folder.path());
    if (chat.ok()) {
      const auto text = chat->render(ordered_json::parse(R"([{"role":"user","content":"a"}])"),
                                     true, ordered_json(), 0);
      EXPECT_TRUE(!text.ok() || text::is_valid_utf8(*text));
    }
    const auto tokenizer = Tokenizer::load(folder.path());
    if (!tokenizer.ok()) return;
    ++loaded;
    EXPECT_GE(tokenizer->eos_id().value_or(0), 0);
    use(*tokenizer, mutator);
  });
  EXPECT_GT(loaded, 0U) << "no changed configuration was taken: the changes are too coarse";
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
      if (c != '<') text += c;  // the first character of added tokens
    }
    for (const auto& [name, tokenizer] : tokenizers) {
      const bool sentence_piece = name == "spm-style";
      std::string expected = name == "fable" ? text::normalize(text, text::NormalForm::nfc) : text;
      if (sentence_piece) {
        // A text may contain its sign for a space.
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
