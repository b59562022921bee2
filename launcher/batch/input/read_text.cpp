#include "launcher/batch/input/read_text.hpp"

#include <array>
#include <chrono>

#include "launcher/batch/input/byte_source.hpp"

namespace troupe {

Result<FileText> read_text(const std::string& path, std::string_view role, std::size_t max_bytes) {
  TROUPE_TRY(ByteSource source, ByteSource::open(path, role));
  FileText read;
  std::array<char, 1 << 16> piece{};
  while (read.text.size() <= max_bytes) {
    TROUPE_TRY(const auto count, source.read(piece, std::chrono::seconds(1)));
    if (!count) continue;
    if (*count == 0) return read;
    read.text.append(piece.data(), *count);
  }
  read.text.resize(max_bytes);
  read.is_whole = false;
  return read;
}

}  // namespace troupe
