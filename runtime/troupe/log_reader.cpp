#include "runtime/troupe/log_reader.hpp"

#include <algorithm>

#include "runtime/state/log_file.hpp"

namespace troupe {
namespace {

std::string text_of(const LogPiece& piece) {
  return {reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size()};
}

}  // namespace

Result<LogPiece> LogReader::piece_at(std::uint64_t offset, std::uint32_t bytes,
                                     std::chrono::milliseconds limit) {
  return client_->get<LogPiece>(AskLog{name_, static_cast<std::int64_t>(offset), bytes}, limit);
}

Result<void> LogReader::go_to_last(std::uint64_t lines, std::chrono::milliseconds limit) {
  TROUPE_TRY(const auto end, piece_at(0, 0, limit));
  at_ = lines == 0 ? end.size : 0;
  std::uint64_t begin = lines == 0 ? 0 : end.size;
  std::uint64_t newlines = 0;
  while (begin > 0) {
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(begin, max_log_piece));
    begin -= bytes;
    TROUPE_TRY(const auto piece, piece_at(begin, bytes, limit));
    for (std::size_t i = piece.bytes.size(); i > 0; --i) {
      const std::uint64_t next = begin + i;
      // The newline that ends the last line begins no other one.
      const bool begins_line = piece.bytes[i - 1] == std::byte{'\n'} && next < end.size;
      if (!begins_line || ++newlines < lines) continue;
      at_ = next;
      return {};
    }
  }
  return {};
}

Result<std::string> LogReader::next(std::chrono::milliseconds limit) {
  TROUPE_TRY(auto piece, piece_at(at_, max_log_piece, limit));
  is_there_ = piece.is_there;
  const bool is_other = inode_ && (piece.inode != *inode_ || piece.path != path_);
  path_ = piece.path;
  shared_with_ = piece.shared_with;
  size_ = piece.size;
  if (!piece.is_there) return std::string();
  inode_ = piece.inode;
  if (is_other || piece.size < at_) {
    at_ = is_other && !piece.shared_with.empty() ? piece.size : 0;
    if (piece.size == at_) return std::string();
    TROUPE_TRY(piece, piece_at(at_, max_log_piece, limit));
    size_ = piece.size;
  }
  at_ = piece.offset + piece.bytes.size();
  return text_of(piece);
}

std::string LogReader::rest() const {
  std::string text;
  if (path_.empty()) return text;
  LogPiece of_file;
  of_file.path = path_;
  while (true) {
    const auto offset = static_cast<std::int64_t>(at_ + text.size());
    const auto piece = read_log_piece(of_file, AskLog{name_, offset, max_log_piece});
    const bool is_same = piece.ok() && piece->is_there && inode_ == piece->inode;
    if (!is_same || piece->bytes.empty()) return text;
    text += text_of(*piece);
  }
}

}  // namespace troupe
