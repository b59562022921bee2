#include "launcher/journal/fingerprint.hpp"

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "runtime/base/sync.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view absent = "nothing";

std::string_view value_of(const std::vector<Fingerprint::Part>& parts, std::string_view name) {
  for (const auto& part : parts) {
    if (part.name == name) return part.value;
  }
  return absent;
}

std::vector<Fingerprint::Part> read_parts(const ordered_json& json) {
  std::vector<Fingerprint::Part> parts;
  for (const auto& [name, value] : json.items()) parts.push_back({name, value.get<std::string>()});
  return parts;
}

ordered_json parts_json(const std::vector<Fingerprint::Part>& parts) {
  ordered_json json = ordered_json::object();
  for (const auto& part : parts) json[part.name] = part.value;
  return json;
}

Result<void> check_format(const std::string& path, const nlohmann::ordered_json& json) {
  const int format = json.value("format", 1);
  if (format == journal_format) return {};
  return fail(ErrorCode::unsupported,
              "{} was written by {} of Troupe, which gives other ids, seeds and error lines: that "
              "version can go on with the job, this one cannot",
              path, format == 1 ? "version 0.1.0" : "a later version");
}

}  // namespace

std::vector<std::string> differences(const Fingerprint& before, const Fingerprint& now) {
  std::vector<std::string> sentences;
  const auto compare = [&](std::string_view name) {
    const std::string_view was = value_of(before.parts, name);
    const std::string_view is = value_of(now.parts, name);
    if (was != is) sentences.push_back(fmt::format("{} was {}, is {}", name, was, is));
  };
  for (const auto& part : now.parts) compare(part.name);
  for (const auto& part : before.parts) {
    if (value_of(now.parts, part.name) == absent) compare(part.name);
  }
  return sentences;
}

std::vector<std::string> rewritten_weights(const Fingerprint& before, const Fingerprint& now) {
  std::vector<std::string> sentences;
  for (const auto& [file, time] : now.weight_times) {
    const std::string_view was = value_of(before.weight_times, file);
    if (was == time || was == absent) continue;
    sentences.push_back(
        fmt::format("{} was written at {}, but at {} when the job began; size and samples of its "
                    "content are the same, so it is taken for the same weights",
                    file, time, was));
  }
  return sentences;
}

Result<Fingerprint> read_fingerprint(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::not_found, "there is no {}", path);
  std::stringstream text;
  text << file.rdbuf();
  const auto json = nlohmann::ordered_json::parse(text.str(), nullptr, false);
  Fingerprint fingerprint;
  try {
    fingerprint.identity = {std::stoull(json.at("job_id").get<std::string>(), nullptr, 16),
                            json.at("created").get<std::int64_t>()};
    fingerprint.parts = read_parts(json.at("answers_depend_on"));
    fingerprint.weight_times = read_parts(json.value("weight_times", ordered_json::object()));
    TROUPE_CHECK(check_format(path, json));
  } catch (const std::exception&) {
    return fail(ErrorCode::corrupt_data, "{} is no fingerprint of a job", path);
  }
  return fingerprint;
}

Result<void> write_fingerprint(const std::string& path, const Fingerprint& fingerprint) {
  const ordered_json json = {{"format", journal_format},
                             {"job_id", fmt::format("{:016x}", fingerprint.identity.id)},
                             {"created", fingerprint.identity.created},
                             {"answers_depend_on", parts_json(fingerprint.parts)},
                             {"weight_times", parts_json(fingerprint.weight_times)}};
  // Paths may hold invalid UTF-8; a fingerprint is compared, its paths are not parsed.
  return write_synced(path,
                      json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace troupe
