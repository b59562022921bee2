#include "actors/driver/router.hpp"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t bytes_per_token = 4;
constexpr std::int64_t chat_answer_tokens = 256;

/// The prompt as bytes, such that prompts with a common prefix have a common prefix here.
std::string_view prompt_bytes(const Request& request) {
  if (request.kind != PromptKind::token_ids) return request.prompt;
  return {reinterpret_cast<const char*>(request.prompt_ids.data()),
          request.prompt_ids.size() * sizeof(std::int32_t)};
}

}  // namespace

std::int64_t estimated_tokens(const Request& request) {
  const auto bytes = static_cast<std::int64_t>(prompt_bytes(request).size());
  return bytes / bytes_per_token +
         request.best_of * request.max_tokens.value_or(chat_answer_tokens);
}

Router::Router(int replicas)
    : outstanding_tokens_(static_cast<std::size_t>(replicas), 0),
      is_open_(static_cast<std::size_t>(replicas), true) {}

void Router::open(int replica) { is_open_[static_cast<std::size_t>(replica)] = true; }

void Router::close(int replica) {
  is_open_[static_cast<std::size_t>(replica)] = false;
  for (Piece& piece : pieces_) piece.given_to[static_cast<std::size_t>(replica)] = false;
}

bool Router::has_open() const { return std::ranges::find(is_open_, true) != is_open_.end(); }

int Router::choose(const Request& request) {
  const std::int64_t tokens = estimated_tokens(request);
  auto best = static_cast<std::size_t>(std::ranges::find(is_open_, true) - is_open_.begin());
  // One replica leaves no choice, so nothing is hashed for it.
  if (outstanding_tokens_.size() > 1) {
    const auto hashes = piece_hashes(request);
    const auto known = known_pieces(hashes);
    constexpr auto tokens_per_piece = static_cast<std::int64_t>(piece_bytes) / bytes_per_token;
    const auto cost = [&](std::size_t replica) {
      return outstanding_tokens_[replica] + tokens - known[replica] * tokens_per_piece;
    };
    for (std::size_t replica = best + 1; replica < outstanding_tokens_.size(); ++replica) {
      if (is_open_[replica] && cost(replica) < cost(best)) best = replica;
    }
    remember(hashes, static_cast<int>(best));
  }
  outstanding_tokens_[best] += tokens;
  outstanding_[request.id] = {static_cast<int>(best), tokens};
  return static_cast<int>(best);
}

void Router::finished(std::uint64_t request) {
  const auto found = outstanding_.find(request);
  if (found == outstanding_.end()) return;
  outstanding_tokens_[static_cast<std::size_t>(found->second.replica)] -= found->second.tokens;
  outstanding_.erase(found);
}

/// One hash for each whole piece, over everything up to its end.
std::vector<std::uint64_t> Router::piece_hashes(const Request& request) const {
  const std::string_view bytes = prompt_bytes(request);
  std::vector<std::uint64_t> hashes;
  std::uint64_t hash = 0;
  for (std::size_t at = 0; at + piece_bytes <= bytes.size(); at += piece_bytes) {
    const std::uint64_t piece = std::hash<std::string_view>{}(bytes.substr(at, piece_bytes));
    hash = (hash ^ piece) * 0x9E3779B97F4A7C15U + 1;
    hashes.push_back(hash);
  }
  return hashes;
}

/// The number of leading pieces that each replica was given before.
std::vector<std::int64_t> Router::known_pieces(const std::vector<std::uint64_t>& hashes) const {
  std::vector<std::int64_t> known(outstanding_tokens_.size(), 0);
  std::int64_t pieces = 0;
  for (const std::uint64_t hash : hashes) {
    const auto found = piece_of_.find(hash);
    if (found == piece_of_.end()) break;
    bool any = false;
    for (std::size_t replica = 0; replica < known.size(); ++replica) {
      if (known[replica] != pieces || !found->second->given_to[replica]) continue;
      ++known[replica];
      any = true;
    }
    if (!any) break;
    ++pieces;
  }
  return known;
}

void Router::remember(const std::vector<std::uint64_t>& hashes, int replica) {
  // From the last piece to the first, so that a prompt's end is forgotten before its beginning,
  // without which it is useless.
  for (const std::uint64_t hash : std::views::reverse(hashes)) {
    auto found = piece_of_.find(hash);
    if (found == piece_of_.end()) {
      pieces_.push_front({hash, std::vector<bool>(outstanding_tokens_.size())});
      found = piece_of_.emplace(hash, pieces_.begin()).first;
    } else {
      pieces_.splice(pieces_.begin(), pieces_, found->second);
    }
    found->second->given_to[static_cast<std::size_t>(replica)] = true;
  }
  while (pieces_.size() > max_pieces) {
    piece_of_.erase(pieces_.back().hash);
    pieces_.pop_back();
  }
}

}  // namespace troupe
