#include "tests/unit/fuzz/targets/mutator.hpp"

#include <algorithm>
#include <limits>

#include "models/text/unicode/utf8.hpp"

namespace troupe::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t borders[] = {0,
                                    1,
                                    -1,
                                    2,
                                    127,
                                    256,
                                    65535,
                                    1 << 20,
                                    1 << 22,
                                    (1 << 27) - 1,
                                    2147483647,
                                    -2147483648LL,
                                    4294967296LL,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};

ordered_json* child(ordered_json& json, std::size_t index) {
  auto at = json.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(index));
  return &*at;
}

}  // namespace

std::size_t Mutator::below(std::size_t count) {
  return count == 0 ? 0 : static_cast<std::size_t>(random_() % count);
}

std::string Mutator::bytes(std::string bytes, std::span<const std::string_view> words) {
  for (std::size_t i = 0, changes = 1 + below(4); i < changes; ++i) change_bytes(bytes, words);
  return bytes;
}

void Mutator::change_bytes(std::string& bytes, std::span<const std::string_view> words) {
  const std::size_t at = below(bytes.size() + 1);
  const std::size_t length = std::min(bytes.size() - at, below(2) == 0 ? below(8) : below(400));
  switch (below(8)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      return;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
      return;
    case 2:
      bytes.erase(at, length);
      return;
    case 3:
      bytes.insert(below(bytes.size() + 1), bytes.substr(at, length));
      return;
    case 4:
      bytes.insert(at, std::string(1 + below(300), static_cast<char>(below(256))));
      return;
    case 5:
      if (one_in(4)) bytes.resize(at);
      return;
    default:
      if (!words.empty()) bytes.insert(at, one_of(words));
  }
}

ordered_json Mutator::value() {
  switch (below(9)) {
    case 0:
      return nullptr;
    case 1:
      return below(2) == 0;
    case 2:
      return borders[below(std::size(borders))];
    case 3:
      return 1.5e300;
    case 4:
      return -0.25;
    case 5:
      return text();
    case 6:
      return ordered_json::array();
    case 7:
      return ordered_json::object();
    default: {
      ordered_json nest = one_in(2) ? ordered_json::array() : ordered_json(7);
      const bool objects = one_in(2);
      for (std::size_t i = 0, levels = 1 + below(200); i < levels; ++i) {
        nest = objects ? ordered_json{{"type", "Sequence"}, {"a", std::move(nest)}}
                       : ordered_json::array({std::move(nest)});
      }
      return nest;
    }
  }
}

void Mutator::change_number(ordered_json& number) {
  if (number.is_number_float()) {
    number = number.get<double>() * (one_in(2) ? -1.0 : 1e10);
  } else if (one_in(2)) {
    number = static_cast<std::int64_t>(number.get<std::uint64_t>() + below(5) - 2);
  } else {
    number = borders[below(std::size(borders))];
  }
}

void Mutator::json(ordered_json& json) {
  if (json.is_structured() && !json.empty() && !one_in(12)) {
    const std::size_t index = below(json.size());
    switch (below(16)) {
      case 0:
        json.erase(std::next(json.begin(), static_cast<std::ptrdiff_t>(index)));
        return;
      case 1:
        if (json.is_array()) {
          json.push_back(*child(json, index));
        } else {
          json[text()] = *child(json, index);
        }
        return;
      case 2:
        std::swap(*child(json, index), *child(json, below(json.size())));
        return;
      default:
        return this->json(*child(json, index));
    }
  }
  if (json.is_number() && !one_in(4)) {
    change_number(json);
  } else if (json.is_string() && !one_in(4)) {
    const std::string changed = bytes(json.get<std::string>());
    std::string valid;
    text::append_lossy(changed, true, valid);
    json = valid;
  } else {
    json = value();
  }
}

void Mutator::set_key(ordered_json& json, std::span<const std::string_view> keys,
                      std::span<const ordered_json> values) {
  ordered_json* at = &json;
  while (!at->empty() && one_in(3)) {
    ordered_json* inner = child(*at, below(at->size()));
    if (!inner->is_object()) break;
    at = inner;
  }
  ordered_json set;
  switch (below(3)) {
    case 0:
      if (!at->empty()) set = *child(*at, below(at->size()));
      break;
    case 1:
      set = values[below(values.size())];
      break;
    default:
      set = value();
  }
  (*at)[std::string(one_of(keys))] = std::move(set);
}

std::string Mutator::text() {
  std::string text;
  for (std::size_t i = 0, count = below(81); i < count; ++i) {
    char32_t code_point = ' ';
    switch (below(8)) {
      case 0:
        code_point = static_cast<char32_t>(below(0x20));
        break;
      case 1:
      case 2:
      case 3:
        code_point = static_cast<char32_t>(0x20 + below(0x5F));
        break;
      case 4:
        code_point = static_cast<char32_t>(0xA0 + below(0x260));
        break;
      case 5:
        code_point = static_cast<char32_t>(0x300 + below(0x70));  // combining marks
        break;
      case 6:
        code_point = static_cast<char32_t>(below(0xD800));
        break;
      default:
        code_point = static_cast<char32_t>(0xE000 + below(0x110000 - 0xE000));
    }
    text::append_code_point(code_point, text);
  }
  return text;
}

}  // namespace troupe::fuzz
