#include "launcher/compression/compression.hpp"

#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>

namespace troupe {
namespace {

constexpr std::size_t chunk_bytes = 64 << 10;
constexpr int gzip_framing = 16 + MAX_WBITS;  // selects gzip instead of zlib's own format
constexpr std::string_view gzip_magic = "\x1f\x8b";
constexpr std::string_view zstd_magic = "\x28\xb5\x2f\xfd";

/// zlib's input pointer lacks const.
Bytef* zlib_bytes(std::span<const char> bytes) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
}

/// True if the file has only zeros from `place` on: space that a power cut left unwritten.
bool only_zeros_behind(const std::string& path, std::uint64_t place) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(place));
  std::vector<char> chunk(chunk_bytes);
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const std::string_view got(chunk.data(), static_cast<std::size_t>(file.gcount()));
    if (got.find_first_not_of('\0') != got.npos) return false;
  }
  return file.eof();
}

Result<void> append_gzip(std::string_view text, std::string& out) {
  z_stream stream{};
  constexpr int memory_level = 8;
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_framing, memory_level,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
    return fail(ErrorCode::internal, "no memory to pack with gzip");
  }
  const std::size_t begin = out.size();
  out.resize(begin + ::deflateBound(&stream, text.size()));
  stream.next_in = zlib_bytes(text);
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = zlib_bytes(std::span(out).subspan(begin));
  stream.avail_out = static_cast<uInt>(out.size() - begin);
  const int status = ::deflate(&stream, Z_FINISH);
  out.resize(begin + stream.total_out);
  ::deflateEnd(&stream);
  if (status != Z_STREAM_END) return fail(ErrorCode::internal, "gzip packed only a part");
  return {};
}

Result<void> append_zstd(std::string_view text, std::string& out) {
  const std::size_t begin = out.size();
  out.resize(begin + ::ZSTD_compressBound(text.size()));
  const std::size_t size = ::ZSTD_compress(out.data() + begin, out.size() - begin, text.data(),
                                           text.size(), ZSTD_CLEVEL_DEFAULT);
  out.resize(begin + (::ZSTD_isError(size) != 0 ? 0 : size));
  if (::ZSTD_isError(size) != 0) {
    return fail(ErrorCode::internal, "cannot pack with zstd: {}", ::ZSTD_getErrorName(size));
  }
  return {};
}

}  // namespace

Compression compression_of_name(std::string_view path) {
  if (path.ends_with(".gz")) return Compression::gzip;
  return path.ends_with(".zst") ? Compression::zstd : Compression::none;
}

Compression compression_of_content(std::string_view first_bytes) {
  if (first_bytes.starts_with(gzip_magic)) return Compression::gzip;
  return first_bytes.starts_with(zstd_magic) ? Compression::zstd : Compression::none;
}

Result<void> append_member(Compression compression, std::string_view text, std::string& out) {
  switch (compression) {
    case Compression::none:
      out += text;
      return {};
    case Compression::gzip:
      return append_gzip(text, out);
    case Compression::zstd:
      return append_zstd(text, out);
  }
  return {};
}

struct Decompressor::State {
  z_stream gzip{};
  ZSTD_DStream* zstd = nullptr;
};

Result<Decompressor> Decompressor::make(Compression compression) {
  auto state = std::make_unique<State>();
  if (compression == Compression::zstd) {
    state->zstd = ::ZSTD_createDStream();
    if (state->zstd == nullptr) return fail(ErrorCode::internal, "no memory to unpack zstd");
  } else if (::inflateInit2(&state->gzip, gzip_framing) != Z_OK) {
    return fail(ErrorCode::internal, "no memory to unpack gzip");
  }
  return Decompressor(state.release());
}

Decompressor::Decompressor(Decompressor&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)) {}

Decompressor& Decompressor::operator=(Decompressor&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Decompressor::~Decompressor() {
  if (state_ == nullptr) return;
  if (state_->zstd != nullptr) {
    ::ZSTD_freeDStream(state_->zstd);
  } else {
    ::inflateEnd(&state_->gzip);
  }
  delete state_;
}

Result<Decompressor::Piece> Decompressor::unpack(std::span<const char> in, std::span<char> out) {
  if (state_->zstd != nullptr) {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ::ZSTD_decompressStream(state_->zstd, &to, &from);
    if (::ZSTD_isError(left) != 0) {
      return fail(ErrorCode::corrupt_data, "not valid zstd: {}", ::ZSTD_getErrorName(left));
    }
    return Piece{from.pos, to.pos, left == 0};
  }
  z_stream& stream = state_->gzip;
  stream.next_in = zlib_bytes(in);
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = zlib_bytes(out);
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = ::inflate(&stream, Z_NO_FLUSH);
  if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
    return fail(ErrorCode::corrupt_data, "not valid gzip: {}",
                stream.msg == nullptr ? "no more is known" : stream.msg);
  }
  const Piece piece{in.size() - stream.avail_in, out.size() - stream.avail_out,
                    status == Z_STREAM_END};
  if (piece.member_ended) ::inflateReset(&stream);
  return piece;
}

Result<std::uint64_t> whole_member_bytes(const std::string& path, Compression compression,
                                         const KeepGoing& keep_going) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::io, "cannot read {}", path);
  TROUPE_TRY(Decompressor unpacker, Decompressor::make(compression));
  std::vector<char> packed(chunk_bytes);
  std::vector<char> ignored(chunk_bytes);
  std::uint64_t whole = 0;
  std::uint64_t at = 0;
  while (file) {
    TROUPE_CHECK(check_goes_on(keep_going, path));
    file.read(packed.data(), static_cast<std::streamsize>(packed.size()));
    std::span<const char> rest(packed.data(), static_cast<std::size_t>(file.gcount()));
    // If the output is full, there may be more from input that was consumed already.
    for (bool full = false; full || !rest.empty();) {
      const auto piece = unpacker.unpack(rest, ignored);
      if (!piece.ok()) {
        if (only_zeros_behind(path, whole)) return whole;
        const std::string advice =
            whole == 0 ? "" : fmt::format("; to go on behind it: truncate -s {} '{}'", whole, path);
        return fail(ErrorCode::corrupt_data, "{} is damaged behind its byte {}: {}{}", path, whole,
                    piece.error().message, advice);
      }
      at += piece->consumed;
      rest = rest.subspan(piece->consumed);
      full = piece->produced == ignored.size();
      if (piece->member_ended) whole = at;
    }
  }
  if (file.bad()) return fail(ErrorCode::io, "cannot read {}", path);
  return whole;
}

}  // namespace troupe
