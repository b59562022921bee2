#include "models/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "models/checkpoint/printable_name.hpp"
#include "models/json/json_file.hpp"

namespace troupe {

namespace {

using Entries = std::map<std::string, SafetensorsFile::Entry, std::less<>>;

constexpr std::size_t length_bytes = 8;
constexpr std::size_t max_header_bytes = 100'000'000;  // the format's own limit

struct FileType {
  std::string_view name;
  std::size_t size;
  std::optional<DType> dtype;  ///< none: a type of the format that Tensor does not have
};

constexpr std::array file_types = {
    FileType{"F32", 4, DType::f32},       FileType{"BF16", 2, DType::bf16},
    FileType{"F16", 2, DType::f16},       FileType{"I32", 4, DType::i32},
    FileType{"I64", 8, DType::i64},       FileType{"U8", 1, DType::u8},
    FileType{"F64", 8, std::nullopt},     FileType{"I16", 2, std::nullopt},
    FileType{"I8", 1, DType::u8},         FileType{"BOOL", 1, std::nullopt},
    FileType{"U16", 2, std::nullopt},     FileType{"U32", 4, std::nullopt},
    FileType{"U64", 8, std::nullopt},     FileType{"F8_E4M3", 1, DType::u8},
    FileType{"F8_E5M2", 1, std::nullopt}, FileType{"F8_E8M0", 1, DType::u8},
};

const FileType* find_type(std::string_view name) {
  const auto* type = std::ranges::find(file_types, name, &FileType::name);
  return type == file_types.end() ? nullptr : type;
}

template <class... Args>
Error corrupt(const std::string& where, fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::corrupt_data, "{}: {}", where,
              fmt::format(format, std::forward<Args>(args)...));
}

Result<std::size_t> read_header_length(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < length_bytes) {
    return corrupt(where, "not a safetensors file: {} bytes, expected at least {}", file.size(),
                   length_bytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  const std::size_t rest = file.size() - length_bytes;
  if (length > rest || length > max_header_bytes) {
    return corrupt(where, "the header is said to have {} bytes, but at most {} are possible here",
                   length, std::min(rest, max_header_bytes));
  }
  return static_cast<std::size_t>(length);
}

Result<nlohmann::json> parse_header(std::string_view text, const std::string& where) {
  TROUPE_CHECK(check_json_limits(text, fmt::format("{}: header", where)));
  std::set<std::string> seen;
  std::optional<std::string> duplicate;
  const auto watch_keys = [&](int depth, nlohmann::json::parse_event_t event,
                              nlohmann::json& value) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      auto name = value.get<std::string>();
      if (!seen.insert(name).second && !duplicate) duplicate = std::move(name);
    }
    return true;
  };
  try {
    auto header = nlohmann::json::parse(text, watch_keys);
    if (!header.is_object()) return corrupt(where, "the header is no JSON object");
    if (duplicate) return corrupt(where, "tensor {} is listed twice", printable_name(*duplicate));
    return header;
  } catch (const nlohmann::json::parse_error& error) {
    return corrupt(where, "the header is not valid JSON (at its byte {})", error.byte);
  } catch (const nlohmann::json::exception& error) {
    return corrupt(where, "the header is not valid JSON: {}", error.what());
  }
}

/// The unsigned integers of a JSON list; none if it is anything else.
std::optional<std::vector<std::uint64_t>> unsigned_list(const nlohmann::json& object,
                                                        std::string_view key) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_array()) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  for (const nlohmann::json& value : *field) {
    if (!value.is_number_unsigned()) return std::nullopt;
    numbers.push_back(value.get<std::uint64_t>());
  }
  return numbers;
}

Result<SafetensorsFile::Entry> read_entry(const nlohmann::json& object, std::size_t data_begin,
                                          std::size_t data_bytes, const std::string& where) {
  const auto dtype = object.is_object() ? object.find("dtype") : object.end();
  if (!object.is_object() || dtype == object.end() || !dtype->is_string()) {
    return corrupt(where, "expected an object with dtype, shape and data_offsets");
  }
  SafetensorsFile::Entry entry;
  entry.dtype_name = dtype->get<std::string>();
  const FileType* type = find_type(entry.dtype_name);
  if (type == nullptr) return corrupt(where, "unknown dtype {}", printable_name(entry.dtype_name));
  entry.element_size = type->size;

  const auto shape = unsigned_list(object, "shape");
  const auto offsets = unsigned_list(object, "data_offsets");
  if (!shape) return corrupt(where, "shape: expected a list of sizes");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return corrupt(where, "data_offsets: expected [begin, end] with begin <= end");
  }
  std::uint64_t bytes = type->size;
  for (const std::uint64_t extent : *shape) {
    if (extent > INT64_MAX || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return corrupt(where, "shape [{}] overflows", fmt::join(*shape, ", "));
    }
    entry.extents.push_back(static_cast<std::int64_t>(extent));
  }
  if ((*offsets)[1] > data_bytes) {
    return corrupt(where,
                   "its data ends {} bytes after the header, but the file has only {} there "
                   "(was it cut short?)",
                   (*offsets)[1], data_bytes);
  }
  if ((*offsets)[1] - (*offsets)[0] != bytes) {
    return corrupt(where, "{} [{}] has {} bytes, but data_offsets span {}", entry.dtype_name,
                   fmt::join(*shape, ", "), bytes, (*offsets)[1] - (*offsets)[0]);
  }
  entry.begin = data_begin + (*offsets)[0];
  entry.end = data_begin + (*offsets)[1];
  return entry;
}

/// Every byte of [begin, end) must belong to exactly one tensor.
Result<void> check_coverage(const Entries& entries, std::size_t begin, std::size_t end,
                            const std::string& where) {
  std::vector<const Entries::value_type*> by_place;
  for (const auto& named : entries) by_place.push_back(&named);
  std::ranges::sort(by_place, [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::size_t reached = begin;
  const Entries::value_type* before = nullptr;
  for (const auto* named : by_place) {
    if (named->second.begin < reached) {
      return corrupt(where, "tensors {} and {} overlap", printable_name(before->first),
                     printable_name(named->first));
    }
    if (named->second.begin > reached) {
      return corrupt(where, "{} bytes before tensor {} belong to no tensor",
                     named->second.begin - reached, printable_name(named->first));
    }
    reached = named->second.end;
    before = named;
  }
  if (reached != end) return corrupt(where, "the last {} bytes belong to no tensor", end - reached);
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  TROUPE_TRY(auto mapped, MappedFile::open(path));
  SafetensorsFile file(std::move(mapped));
  const std::string where = path.string();
  const std::span<const std::byte> bytes = file.file_.bytes();
  TROUPE_TRY(const std::size_t header_length, read_header_length(bytes, where));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + length_bytes,
                              header_length);
  TROUPE_TRY(const nlohmann::json header, parse_header(text, where));

  const std::size_t data_begin = length_bytes + header_length;
  for (const auto& [name, object] : header.items()) {
    if (name == "__metadata__") continue;
    TROUPE_TRY(auto entry, read_entry(object, data_begin, bytes.size() - data_begin,
                                      fmt::format("{}: tensor {}", where, printable_name(name))));
    file.entries_.emplace(name, std::move(entry));
  }
  TROUPE_CHECK(check_coverage(file.entries_, data_begin, bytes.size(), where));
  return file;
}

Result<Tensor> SafetensorsFile::tensor(std::string_view name) const {
  TROUPE_TRY(const StoredTensor found, stored(name));
  return found.view;
}

Result<StoredTensor> SafetensorsFile::stored(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return fail(ErrorCode::not_found, "{}: no tensor {}", path().string(), name);
  }
  const Entry& entry = found->second;
  const FileType* type = find_type(entry.dtype_name);
  if (!type->dtype || entry.extents.size() > static_cast<std::size_t>(Shape::max_rank)) {
    return fail(ErrorCode::unsupported, "{}: tensor {} is {} [{}], which this version cannot use",
                path().string(), name, entry.dtype_name, fmt::join(entry.extents, ", "));
  }
  // A view is not const; the pages are mapped read-only, so writing would trap.
  auto* data = const_cast<std::byte*>(file_.bytes().data() + entry.begin);
  return StoredTensor{.view = Tensor(data, *type->dtype, Shape(entry.extents)),
                      .file = file_.descriptor(),
                      .direct_file = file_.direct_descriptor(),
                      .offset = entry.begin};
}

std::string_view SafetensorsFile::type_of(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? std::string_view() : found->second.dtype_name;
}

SafetensorsFile::Raw SafetensorsFile::raw(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {};
  const Entry& entry = found->second;
  return {entry.dtype_name, entry.extents,
          file_.bytes().subspan(entry.begin, entry.end - entry.begin)};
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

}  // namespace troupe
