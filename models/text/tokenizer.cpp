#include "models/text/tokenizer.hpp"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "models/json/json_file.hpp"
#include "models/text/added_tokens.hpp"
#include "models/text/bpe.hpp"
#include "models/text/decoder.hpp"
#include "models/text/detokenizer.hpp"
#include "models/text/normalizer.hpp"
#include "models/text/pre_tokenizer.hpp"
#include "models/text/tokenizer_config.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// The ids that the post-processor puts around a text.
struct Frame {
  std::vector<std::int32_t> before, after;
};

/// Limit on a frame, which is part of every prompt; published ones have at most two tokens.
constexpr std::size_t most_frame_tokens = 256;

Result<> read_post_processor(const nlohmann::json& processor, Frame& frame) {
  if (processor.is_null()) return {};
  const auto type = processor.at("type").get<std::string>();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "Sequence") {
    for (const auto& step : processor.at("processors"))
      TROUPE_CHECK(read_post_processor(step, frame));
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
    if (side.size() > most_frame_tokens) {
      return fail(ErrorCode::corrupt_data, "post_processor with more than {} tokens",
                  most_frame_tokens);
    }
  }
  frame.before.insert(frame.before.begin(), added.before.begin(), added.before.end());
  frame.after.insert(frame.after.end(), added.after.begin(), added.after.end());
  if (frame.before.size() + frame.after.size() <= most_frame_tokens) return {};
  return fail(ErrorCode::corrupt_data, "post_processor with more than {} tokens",
              most_frame_tokens);
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
  std::optional<std::int32_t> eos_id;

  static Result<std::unique_ptr<const Parts>> parse(const nlohmann::json& file,
                                                    const text::TokenizerConfig& config);
  std::optional<std::int32_t> id_of(std::string_view token) const;
  Result<> read_added_tokens(const nlohmann::json& added, const text::TokenizerConfig& config);
  Result<> set_frame(const text::TokenizerConfig& config);
  Result<> encode_text(std::string_view text, bool is_first, text::Bpe::Scratch& scratch,
                       std::vector<std::int32_t>& ids) const;
};

Result<std::unique_ptr<const Tokenizer::Parts>> Tokenizer::Parts::parse(
    const nlohmann::json& file, const text::TokenizerConfig& config) {
  const nlohmann::json none;
  const auto part = [&](const char* key) -> const nlohmann::json& {
    const auto& from = config.components.contains(key) ? config.components : file;
    const auto found = from.find(key);
    return found == from.end() ? none : *found;
  };
  TROUPE_TRY(auto normalizer, text::Normalizer::parse(part("normalizer")));
  TROUPE_TRY(auto pre_tokenizer,
             text::PreTokenizer::parse(part("pre_tokenizer"), config.add_prefix_space));
  TROUPE_TRY(auto model, text::Bpe::parse(file.at("model"), pre_tokenizer.is_byte_level()));
  TROUPE_TRY(auto decoder, text::Decoder::parse(part("decoder")));
  auto parts = std::make_unique<Parts>(Parts{std::move(normalizer),
                                             std::move(pre_tokenizer),
                                             std::move(model),
                                             std::move(decoder),
                                             {},
                                             {},
                                             {},
                                             {},
                                             {}});
  for (const auto& [token, id] : parts->model.vocabulary())
    TROUPE_CHECK(parts->decoder.add_token(id, token, false));
  TROUPE_CHECK(parts->read_added_tokens(part("added_tokens"), config));
  if (config.frame) {
    TROUPE_CHECK(parts->set_frame(config));
  } else {
    TROUPE_CHECK(read_post_processor(part("post_processor"), parts->frame));
  }
  if (const auto eos = config.special_token("eos_token")) parts->eos_id = parts->id_of(*eos);
  return Result<std::unique_ptr<const Parts>>(std::move(parts));
}

std::optional<std::int32_t> Tokenizer::Parts::id_of(std::string_view token) const {
  if (const auto added = added_ids.find(token); added != added_ids.end()) return added->second;
  const auto found = model.vocabulary().find(token);
  if (found == model.vocabulary().end()) return std::nullopt;
  return found->second;
}

Result<> Tokenizer::Parts::read_added_tokens(const nlohmann::json& added,
                                             const text::TokenizerConfig& config) {
  // Keyed by id, so that the config's entry for a token replaces tokenizer.json's.
  std::map<std::int32_t, text::AddedTokenEntry> tokens;
  const auto set = [&](std::int64_t id, text::AddedTokenEntry entry) -> Result<> {
    if (id < 0 || id > text::largest_token_id)
      return fail(ErrorCode::corrupt_data, "added token '{}' has the id {}", entry.content, id);
    const auto token_id = static_cast<std::int32_t>(id);
    added_ids[entry.content] = token_id;
    const auto known = tokens.find(token_id);
    if (known != tokens.end() && known->second.special) entry.special = true;
    tokens.insert_or_assign(token_id, std::move(entry));
    return {};
  };
  for (const auto& entry : added)
    TROUPE_CHECK(set(entry.at("id").get<std::int64_t>(), text::parse_added_token(entry, false)));
  const auto add = [&](const text::AddedTokenEntry& entry) -> Result<> {
    if (entry.content.empty()) return {};
    const auto vocabulary_size = static_cast<std::int64_t>(model.vocabulary().size());
    const std::int64_t next =
        tokens.empty() ? vocabulary_size
                       : std::max<std::int64_t>(vocabulary_size, tokens.rbegin()->first + 1);
    const auto known = id_of(entry.content);
    return set(known ? std::int64_t{*known} : next, entry);
  };
  for (const auto& entry : config.added_tokens) TROUPE_CHECK(add(entry));
  for (const auto& [role, entry] : config.special_tokens)
    if (!added_ids.contains(entry.content)) TROUPE_CHECK(add(entry));
  for (auto& [id, entry] : tokens) {
    if (entry.normalized) {
      TROUPE_TRY(entry.content, normalizer.apply(entry.content));
    }
    // The library decodes a normalized token to its searched spelling, not to the file's.
    TROUPE_CHECK(decoder.add_token(id, entry.content, entry.special));
    (entry.normalized ? normalized_tokens : raw_tokens)
        .add({entry.content, id, entry.single_word, entry.lstrip, entry.rstrip});
  }
  return {};
}

Result<> Tokenizer::Parts::set_frame(const text::TokenizerConfig& config) {
  const auto token = [&](bool is_added,
                         std::string_view role) -> Result<std::vector<std::int32_t>> {
    std::vector<std::int32_t> ids;
    if (!is_added) return ids;
    const auto spelling = config.special_token(role);
    const auto id = spelling ? id_of(*spelling) : std::nullopt;
    if (!id) {
      return fail(ErrorCode::corrupt_data,
                  "the tokenizer_class adds its {0} to each text, but tokenizer_config.json names "
                  "none: set {0}, or add_{0} to false",
                  role);
    }
    ids.push_back(*id);
    return ids;
  };
  TROUPE_TRY(frame.before, token(config.frame->bos, "bos_token"));
  TROUPE_TRY(frame.after, token(config.frame->eos, "eos_token"));
  return {};
}

Result<> Tokenizer::Parts::encode_text(std::string_view raw, bool is_first,
                                       text::Bpe::Scratch& scratch,
                                       std::vector<std::int32_t>& ids) const {
  std::string normalized;
  if (!normalizer.is_identity()) {
    TROUPE_TRY(normalized, normalizer.apply(raw));
  }
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
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const auto file = is_folder ? path / "tokenizer.json" : path;
  text::TokenizerConfig config;
  if (is_folder) {
    TROUPE_TRY(config, text::TokenizerConfig::load(path));
  }
  TROUPE_TRY(const nlohmann::json json, read_json_object(file));
  try {
    auto parts = Parts::parse(json, config);
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

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens,
                              std::span<const std::int32_t> before) const {
  Detokenizer detokenizer(*this, skip_special_tokens, before);
  std::string out;
  for (const std::int32_t id : ids) out += detokenizer.push(id);
  return out += detokenizer.flush();
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const { return decoder().piece(id).bytes; }

std::size_t Tokenizer::tokens_before_text() const { return parts_->frame.before.size(); }

bool Tokenizer::is_special(std::int32_t id) const { return decoder().piece(id).is_special; }

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(decoder().size()); }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return parts_->id_of(token);
}

std::optional<std::int32_t> Tokenizer::eos_id() const { return parts_->eos_id; }

const text::Decoder& Tokenizer::decoder() const { return parts_->decoder; }

}  // namespace troupe
