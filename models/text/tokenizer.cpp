#include "models/text/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include "models/text/added_tokens.hpp"
#include "models/text/bpe.hpp"
#include "models/text/decoder.hpp"
#include "models/text/detokenizer.hpp"
#include "models/text/json_file.hpp"
#include "models/text/normalizer.hpp"
#include "models/text/pre_tokenizer.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// The ids that the post-processor puts around a text.
struct Frame {
  std::vector<std::int32_t> before, after;
};

Result<> read_post_processor(const nlohmann::json& processor, int depth, Frame& frame) {
  if (processor.is_null()) return {};
  const auto type = processor.at("type").get<std::string>();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "Sequence") {
    TROUPE_CHECK(text::check_sequence_depth(depth));
    for (const auto& step : processor.at("processors"))
      TROUPE_CHECK(read_post_processor(step, depth + 1, frame));
    return {};
  }
  if (type != "TemplateProcessing") return fail(ErrorCode::unsupported, "post_processor {}", type);
  Frame added;
  bool is_behind_text = false;
  for (const auto& item : processor.at("single")) {
    if (item.contains("Sequence")) {
      is_behind_text = true;
      continue;
    }
    const auto name = item.at("SpecialToken").at("id").get<std::string>();
    const auto ids =
        processor.at("special_tokens").at(name).at("ids").get<std::vector<std::int32_t>>();
    auto& side = is_behind_text ? added.after : added.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  frame.before.insert(frame.before.begin(), added.before.begin(), added.before.end());
  frame.after.insert(frame.after.end(), added.after.begin(), added.after.end());
  return {};
}

}  // namespace

struct Tokenizer::Parts {
  text::Normalizer normalizer;
  text::PreTokenizer pre_tokenizer;
  text::Bpe model;
  text::Decoder decoder;
  text::AddedTokens raw_tokens;         // searched before normalisation
  text::AddedTokens normalized_tokens;  // searched after it, in their normalised spelling
  text::Vocabulary added_ids;
  Frame frame;

  static Result<std::unique_ptr<const Parts>> parse(const nlohmann::json& file);
  Result<> read_added_tokens(const nlohmann::json& added);
  Result<> encode_text(std::string_view text, bool is_first, text::Bpe::Scratch& scratch,
                       std::vector<std::int32_t>& ids) const;
};

Result<std::unique_ptr<const Tokenizer::Parts>> Tokenizer::Parts::parse(
    const nlohmann::json& file) {
  const auto part = [&](const char* key) { return file.value(key, nlohmann::json()); };
  TROUPE_TRY(auto normalizer, text::Normalizer::parse(part("normalizer")));
  TROUPE_TRY(auto pre_tokenizer, text::PreTokenizer::parse(part("pre_tokenizer")));
  TROUPE_TRY(auto model, text::Bpe::parse(file.at("model"), pre_tokenizer.is_byte_level()));
  TROUPE_TRY(auto decoder, text::Decoder::parse(part("decoder")));
  auto parts = std::make_unique<Parts>(Parts{std::move(normalizer),
                                             std::move(pre_tokenizer),
                                             std::move(model),
                                             std::move(decoder),
                                             {},
                                             {},
                                             {},
                                             {}});
  for (const auto& [token, id] : parts->model.vocabulary())
    parts->decoder.add_token(id, token, false);
  TROUPE_CHECK(parts->read_added_tokens(part("added_tokens")));
  TROUPE_CHECK(read_post_processor(part("post_processor"), 0, parts->frame));
  return Result<std::unique_ptr<const Parts>>(std::move(parts));
}

Result<> Tokenizer::Parts::read_added_tokens(const nlohmann::json& added) {
  for (const auto& entry : added) {
    const auto content = entry.at("content").get<std::string>();
    const auto id = entry.at("id").get<std::int64_t>();
    if (id < 0 || id > text::largest_token_id)
      return fail(ErrorCode::corrupt_data, "added token '{}' has the id {}", content, id);
    text::AddedTokens::Token token{content, static_cast<std::int32_t>(id),
                                   entry.value("single_word", false), entry.value("lstrip", false),
                                   entry.value("rstrip", false)};
    added_ids[content] = token.id;
    const bool is_normalized = entry.value("normalized", false);
    if (is_normalized) token.content = normalizer.apply(content);
    // The library gives a normalized token back as it is searched for, not as the file spells it.
    decoder.add_token(token.id, token.content, entry.value("special", false));
    (is_normalized ? normalized_tokens : raw_tokens).add(std::move(token));
  }
  return {};
}

Result<> Tokenizer::Parts::encode_text(std::string_view raw, bool is_first,
                                       text::Bpe::Scratch& scratch,
                                       std::vector<std::int32_t>& ids) const {
  const std::string normalized = normalizer.is_identity() ? "" : normalizer.apply(raw);
  const std::string_view text = normalizer.is_identity() ? raw : normalized;
  Result<> result;
  normalized_tokens.split(text, [&](std::string_view part, std::optional<std::int32_t> id) {
    if (id) {
      ids.push_back(*id);
    } else if (result.ok()) {
      const bool begins = is_first && part.data() == text.data();
      result = pre_tokenizer.split(
          part, begins, [&](std::string_view word) { model.encode_word(word, scratch, ids); });
    }
  });
  return result;
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto file = std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  TROUPE_TRY(const nlohmann::json json, text::read_json_file(file));
  try {
    auto parts = Parts::parse(json);
    if (!parts.ok()) {
      return fail(parts.error().code, "{}: {}{}", file.string(), parts.error().message,
                  parts.error().code == ErrorCode::unsupported ? " is not supported" : "");
    }
    return Tokenizer(std::move(parts).value());
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::corrupt_data, "{} is not a tokenizer: {}", file.string(), error.what());
  }
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view utf8,
                                                    bool add_special_tokens) const {
  if (!text::is_valid_utf8(utf8))
    return fail(ErrorCode::invalid_argument, "the text is not well-formed UTF-8");
  std::vector<std::int32_t> ids;
  if (add_special_tokens) ids = parts_->frame.before;
  text::Bpe::Scratch scratch;
  Result<> result;
  parts_->raw_tokens.split(utf8, [&](std::string_view part, std::optional<std::int32_t> id) {
    if (id) {
      ids.push_back(*id);
    } else if (result.ok()) {
      result = parts_->encode_text(part, part.data() == utf8.data(), scratch, ids);
    }
  });
  TROUPE_CHECK(std::move(result));
  if (add_special_tokens)
    ids.insert(ids.end(), parts_->frame.after.begin(), parts_->frame.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string out;
  for (const std::int32_t id : ids) out += detokenizer.push(id);
  return out += detokenizer.flush();
}

bool Tokenizer::is_special(std::int32_t id) const { return decoder().piece(id).is_special; }

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(decoder().size()); }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const auto added = parts_->added_ids.find(token); added != parts_->added_ids.end())
    return added->second;
  const auto& vocabulary = parts_->model.vocabulary();
  const auto found = vocabulary.find(token);
  if (found == vocabulary.end()) return std::nullopt;
  return found->second;
}

const text::Decoder& Tokenizer::decoder() const { return parts_->decoder; }

}  // namespace troupe
