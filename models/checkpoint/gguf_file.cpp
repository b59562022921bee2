#include "models/checkpoint/gguf_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "models/checkpoint/printable_name.hpp"
#include "models/ops/gguf_format.hpp"
#include "models/ops/unaligned.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t magic = 0x46554747;  // "GGUF"
constexpr std::int64_t max_extents = 4, standard_alignment = 32;

/// Types of values, by number.
constexpr std::uint32_t text_type = 8, list_type = 9;
/// A type of numbers; without bytes it is none.
struct NumberType {
  std::size_t bytes = 0;
  bool is_whole = false, is_signed = false;
};
constexpr std::array<NumberType, 13> number_types{{{1, true, false},
                                                   {1, true, true},
                                                   {2, true, false},
                                                   {2, true, true},
                                                   {4, true, false},
                                                   {4, true, true},
                                                   {4},
                                                   {1},
                                                   {},
                                                   {},
                                                   {8, true, false},
                                                   {8, true, true},
                                                   {8}}};

}  // namespace

/// Reads a header, from its first byte on.
class GgufFile::Reader {
 public:
  explicit Reader(GgufFile& file) : file_(file), bytes_(file.file_.bytes()) {}

  Result<void> run() {
    TROUPE_TRY(const auto first, number<std::uint32_t>());
    if (first != magic) return corrupt("not a GGUF file");
    TROUPE_TRY(const auto version, number<std::uint32_t>());
    if (version != 2 && version != 3) {
      return fail(ErrorCode::unsupported,
                  "{}: version {} of GGUF; versions 2 and 3, little endian, are read",
                  file_.path().string(), version);
    }
    TROUPE_TRY(const auto tensors, number<std::uint64_t>());
    TROUPE_TRY(const auto values, number<std::uint64_t>());
    for (std::uint64_t i = 0; i < values; ++i) TROUPE_CHECK(read_value());
    for (std::uint64_t i = 0; i < tensors; ++i) TROUPE_CHECK(read_tensor());
    return place_tensors();
  }

 private:
  template <class... Args>
  Error corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::corrupt_data, "{}: {}", file_.path().string(),
                fmt::format(format, std::forward<Args>(args)...));
  }

  Result<const std::byte*> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      return corrupt("the header ends early, {} bytes after its byte {} (was the file cut short?)",
                     count, at_);
    }
    const std::byte* const begin = bytes_.data() + at_;
    at_ += count;
    return begin;
  }
  template <class T>
  Result<T> number() {
    TROUPE_TRY(const std::byte* from, take(sizeof(T)));
    return load_unaligned<T>(from, 0);
  }
  Result<std::string> text() {
    TROUPE_TRY(const auto length, number<std::uint64_t>());
    TROUPE_TRY(const std::byte* from, take(length));
    return std::string(reinterpret_cast<const char*>(from), length);
  }

  Result<void> read_value() {
    TROUPE_TRY(std::string key, text());
    TROUPE_TRY(const auto type, number<std::uint32_t>());
    TROUPE_TRY(Value value, value_of(type, key));
    if (!file_.values_.emplace(key, std::move(value)).second) {
      return corrupt("key {} is there twice", printable_name(key));
    }
    return {};
  }

  Result<Value> value_of(std::uint32_t type, const std::string& key) {
    if (type == text_type) {
      TROUPE_TRY(std::string value, text());
      return Value(std::move(value));
    }
    if (type == list_type) {
      TROUPE_CHECK(skip_list(key));
      return Value();
    }
    TROUPE_TRY(const NumberType found, number_type(type, key));
    TROUPE_TRY(const std::byte* from, take(found.bytes));
    if (!found.is_whole) return Value();
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, found.bytes);
    const auto unused = static_cast<int>(8 * (sizeof bits - found.bytes));
    const auto shifted = static_cast<std::int64_t>(bits << unused);
    return Value(found.is_signed ? shifted >> unused : static_cast<std::int64_t>(bits));
  }

  Result<NumberType> number_type(std::uint32_t type, const std::string& key) const {
    if (type < number_types.size() && number_types[type].bytes > 0) return number_types[type];
    return corrupt("key {}: its value has the type {}, which GGUF does not have",
                   printable_name(key), type);
  }

  Result<void> skip_list(const std::string& key) {
    TROUPE_TRY(const auto type, number<std::uint32_t>());
    TROUPE_TRY(const auto count, number<std::uint64_t>());
    if (type == text_type) {
      for (std::uint64_t i = 0; i < count; ++i) {
        TROUPE_TRY(const auto length, number<std::uint64_t>());
        TROUPE_TRY([[maybe_unused]] const std::byte* skipped, take(length));
      }
      return {};
    }
    TROUPE_TRY(const NumberType found, number_type(type, key));
    if (count > bytes_.size()) return corrupt("key {}: a list of {}", printable_name(key), count);
    TROUPE_TRY([[maybe_unused]] const std::byte* skipped, take(count * found.bytes));
    return {};
  }

  Result<void> read_tensor() {
    TROUPE_TRY(std::string name, text());
    TROUPE_TRY(const auto rank, number<std::uint32_t>());
    if (rank < 1 || rank > max_extents) {
      return corrupt("tensor {}: {} extents, expected 1 to {}", printable_name(name), rank,
                     max_extents);
    }
    TensorInfo info;
    for (std::uint32_t i = 0; i < rank; ++i) {
      TROUPE_TRY(const auto extent, number<std::int64_t>());
      info.extents.insert(info.extents.begin(), extent);
    }
    TROUPE_TRY(info.type, number<std::uint32_t>());
    TROUPE_TRY(info.begin, number<std::uint64_t>());
    const auto [entry, is_new] = file_.tensors_.emplace(std::move(name), std::move(info));
    if (!is_new) return corrupt("tensor {} is there twice", printable_name(entry->first));
    return {};
  }

  /// Counts the tensors' places from the file's begin, and checks them.
  Result<void> place_tensors() {
    const std::int64_t alignment = file_.integer("general.alignment").value_or(standard_alignment);
    if (alignment < 1 || alignment > (1 << 20)) {
      return corrupt("general.alignment is {}", alignment);
    }
    const auto unit = static_cast<std::size_t>(alignment);
    const std::size_t data = (at_ + unit - 1) / unit * unit;
    for (auto& [name, info] : file_.tensors_) {
      TROUPE_TRY(const std::uint64_t bytes, bytes_of(name, info));
      if (data > bytes_.size() || info.begin > bytes_.size() - data ||
          bytes > bytes_.size() - data - info.begin) {
        return corrupt("tensor {}: {} bytes from {} on are not in the file (was it cut short?)",
                       printable_name(name), bytes, info.begin);
      }
      info.begin += data;
    }
    return {};
  }

  /// 0 for a type that is not read: nobody asks for its bytes.
  Result<std::uint64_t> bytes_of(const std::string& name, const TensorInfo& info) const {
    const GgufType* const type = gguf_type(info.type);
    std::uint64_t elements = 1;
    for (const std::int64_t extent : info.extents) {
      if (extent < 0 ||
          __builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements)) {
        return corrupt("tensor {}: extents [{}]", printable_name(name),
                       fmt::join(info.extents, ", "));
      }
    }
    if (type == nullptr) return 0;
    const auto columns = static_cast<std::uint64_t>(type->block_columns);
    if (static_cast<std::uint64_t>(info.extents.back()) % columns != 0) {
      return corrupt("tensor {}: rows of {}, which are no whole blocks of {}", printable_name(name),
                     info.extents.back(), type->format.name);
    }
    std::uint64_t bytes = 0;
    const auto of_block = static_cast<std::uint64_t>(type->block_bytes);
    if (__builtin_mul_overflow(elements / columns, of_block, &bytes)) {
      return corrupt("tensor {}: extents [{}]", printable_name(name),
                     fmt::join(info.extents, ", "));
    }
    return bytes;
  }

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  TROUPE_TRY(auto mapped, MappedFile::open(path));
  GgufFile file(std::move(mapped));
  TROUPE_CHECK(Reader(file).run());
  return file;
}

const GgufFile::TensorInfo* GgufFile::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const auto* const value = std::get_if<std::string>(&found->second);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const auto* const value = std::get_if<std::int64_t>(&found->second);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

}  // namespace troupe
