#include "actors/api/request_progress.hpp"

#include <iterator>
#include <utility>

namespace troupe {
namespace {

std::size_t bytes_of(const std::vector<TokenLogprobs>& scores) {
  std::size_t bytes = 0;
  for (const TokenLogprobs& token : scores) {
    bytes += sizeof(TokenLogprobs) + token.top_ids.size() * sizeof(std::int32_t) +
             token.top_logprobs.size() * sizeof(float);
  }
  return bytes;
}

template <class T>
void append(std::vector<T>& all, std::vector<T> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

void RequestProgress::add(SequenceUpdate update) {
  bytes_ += update.tokens.size() * sizeof(std::int32_t) + bytes_of(update.logprobs) +
            bytes_of(update.prompt_logprobs);
  const auto [last, is_new] = last_of_.try_emplace(update.sequence, updates_.size());
  if (is_new || !update.prompt_logprobs.empty()) {
    last->second = updates_.size();
    bytes_ += sizeof(SequenceUpdate);
    updates_.push_back(std::move(update));
    return;
  }
  SequenceUpdate& before = updates_[last->second];
  append(before.tokens, std::move(update.tokens));
  append(before.logprobs, std::move(update.logprobs));
  before.end = update.end;
}

std::vector<SequenceUpdate> RequestProgress::take() {
  last_of_.clear();
  bytes_ = 0;
  return std::exchange(updates_, {});
}

}  // namespace troupe
