#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How a file is packed. gzip files (RFC 1952) are sequences of members and Zstandard files (RFC
/// 8878) of frames, each of which can be unpacked alone; both are called members here.
enum class Compression { none, gzip, zstd };

/// Chosen by the end of a file's name: .gz, .zst, else none.
Compression compression_of_name(std::string_view path);

/// Detected from the first bytes of a file; with fewer than compression_magic_bytes it may miss
/// one.
Compression compression_of_content(std::string_view first_bytes);
inline constexpr std::size_t compression_magic_bytes = 4;

/// Packs `text` into one member and appends that to `out`; with Compression::none appends `text`.
/// Levels are the formats' defaults. Errors: internal (no memory for the packer).
Result<void> append_member(Compression compression, std::string_view text, std::string& out);

/// Unpacks members incrementally. One thread at a time.
class Decompressor {
 public:
  /// `compression` is not none. Errors: internal (no memory).
  static Result<Decompressor> make(Compression compression);
  Decompressor(Decompressor&& other) noexcept;
  Decompressor& operator=(Decompressor&& other) noexcept;
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor();

  struct Piece {
    std::size_t consumed = 0;
    std::size_t produced = 0;
    bool member_ended = false;  ///< a member ends after the consumed bytes
  };
  /// Unpacks from `in` into `out` until either ends, or a member does. Errors: corrupt_data; a
  /// window of more than 128 MiB (zstd --long) is one.
  Result<Piece> unpack(std::span<const char> in, std::span<char> out);

 private:
  struct State;
  explicit Decompressor(State* state) : state_(state) {}
  State* state_ = nullptr;
};

/// Returns how many bytes from the beginning of the file at `path` are whole members: the rest was
/// cut off during writing, or is zeros, and can be removed. Errors: io; corrupt_data for other
/// bytes that belong to no member, with their place; cancelled.
Result<std::uint64_t> whole_member_bytes(const std::string& path, Compression compression,
                                         const KeepGoing& keep_going = nullptr);

}  // namespace troupe
