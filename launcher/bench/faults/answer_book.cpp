#include "launcher/bench/faults/answer_book.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "runtime/call/codec.hpp"

namespace troupe {
namespace {

/// "1 token", "2 tokens".
std::string tokens(std::size_t count) {
  return fmt::format("{} token{}", count, count == 1 ? "" : "s");
}

}  // namespace

AnswerBook::Kept AnswerBook::kept_of(Completion completion) {
  completion.id = 0;
  completion.first_token_us = 0;
  completion.last_token_us = 0;
  const Bytes bytes = encode(completion);
  Kept kept;
  kept.hash = hash_128({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  kept.error_code = std::move(completion.error_code);
  for (Choice& choice : completion.choices) kept.tokens.push_back(std::move(choice.token_ids));
  return kept;
}

std::string AnswerBook::difference(const Kept& before, const Kept& now) {
  if (before.hash == now.hash) return "";
  if (before.error_code != now.error_code) {
    if (now.error_code.empty()) return fmt::format("an answer instead of {}", before.error_code);
    return fmt::format("the error {}", now.error_code);
  }
  if (before.tokens.size() != now.tokens.size()) {
    return fmt::format("{} choices instead of {}", now.tokens.size(), before.tokens.size());
  }
  for (std::size_t i = 0; i < now.tokens.size(); ++i) {
    const auto& [was, is] = std::pair(before.tokens[i], now.tokens[i]);
    const auto [a, b] = std::mismatch(was.begin(), was.end(), is.begin(), is.end());
    if (a == was.end() && b == is.end()) continue;
    if (a == was.end() || b == is.end()) {
      return fmt::format("{} instead of {}", tokens(is.size()), tokens(was.size()));
    }
    return fmt::format("token {} of {} is another one", b - is.begin() + 1, is.size());
  }
  return "the same tokens, but not the same text, end or scores";
}

void AnswerBook::note(std::uint64_t id, std::string what) {
  ++different_;
  if (differences_.size() >= max_told) return;
  const std::uint64_t requests = kept_.size();
  differences_.push_back({(id - 1) / requests, (id - 1) % requests + 1, std::move(what)});
}

void AnswerBook::take(Completion completion) {
  const std::uint64_t id = completion.id;
  if (id == 0 || kept_.empty()) return;
  if (unanswered_.erase(id) == 0) return note(id, "a second answer");
  const std::uint64_t round = (id - 1) / kept_.size();
  Kept& before = kept_[(id - 1) % kept_.size()];
  Kept now = kept_of(std::move(completion));
  if (round == 0) {
    before = std::move(now);
    return;
  }
  ++compared_;
  if (std::string what = difference(before, now); !what.empty()) note(id, std::move(what));
}

}  // namespace troupe
