#include "models/text/normalizer.hpp"

#include <nlohmann/json.hpp>

#include "models/text/string_replace.hpp"
#include "models/text/text_limits.hpp"

namespace troupe::text {

Result<Normalizer> Normalizer::parse(const nlohmann::json& normalizer) {
  Normalizer out;
  TROUPE_CHECK(out.add(normalizer));
  return out;
}

Result<> Normalizer::add(const nlohmann::json& normalizer) {
  if (normalizer.is_null()) return {};
  const auto type = normalizer.at("type").get<std::string>();
  if (type == "NFC") {
    steps_.emplace_back(NormalForm::nfc);
  } else if (type == "NFD") {
    steps_.emplace_back(NormalForm::nfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(NormalForm::nfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(NormalForm::nfkd);
  } else if (type == "Prepend") {
    TROUPE_TRY(auto prefix, read_short_text(normalizer, "prepend"));
    steps_.emplace_back(Prepend{std::move(prefix)});
  } else if (type == "Replace") {
    const auto& pattern = normalizer.at("pattern");
    if (!pattern.contains("String"))
      return fail(ErrorCode::unsupported, "normalizer Replace with a pattern that is no string");
    TROUPE_TRY(auto to, read_short_text(normalizer, "content"));
    steps_.emplace_back(Replace{pattern.at("String").get<std::string>(), std::move(to)});
  } else if (type == "Sequence") {
    for (const auto& step : normalizer.at("normalizers")) TROUPE_CHECK(add(step));
  } else {
    return fail(ErrorCode::unsupported, "normalizer {}", type);
  }
  return check_steps(steps_.size(), "normalizer");
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const auto& step : steps_) {
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      out = normalize(out, *form);
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!out.empty()) out.insert(0, prepend->prefix);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      out = replace_all(out, replace->from, replace->to);
    }
    if (out.size() > largest_grown_text(text.size())) {
      return fail(ErrorCode::resource_exhausted, "normalising {} bytes of text gives more than {}",
                  text.size(), largest_grown_text(text.size()));
    }
  }
  return out;
}

}  // namespace troupe::text
