#include "actors/worker/sampling/row_choice.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

/// The header of a record; `alternatives` ids and their log-probabilities follow.
struct RecordHead {
  std::int32_t id = -1;
  std::int32_t failed = 0;
  std::int32_t alternatives = 0;
  std::int32_t rank = 0;
  float logprob = 0.0F;
};

}  // namespace

std::size_t record_bytes(std::int32_t alternatives) {
  return sizeof(RecordHead) +
         static_cast<std::size_t>(alternatives) * (sizeof(std::int32_t) + sizeof(float));
}

void write_record(const RowChoice& choice, std::span<std::byte> record) {
  const TokenLogprobs& scores = choice.scores;
  const RecordHead head{choice.id, choice.failed ? 1 : 0,
                        static_cast<std::int32_t>(scores.top_ids.size()), scores.rank,
                        scores.logprob};
  std::memcpy(record.data(), &head, sizeof head);
  const auto ids = std::as_bytes(std::span(scores.top_ids));
  const auto rest = record.subspan(sizeof head);
  std::ranges::copy(ids, rest.begin());
  std::ranges::copy(std::as_bytes(std::span(scores.top_logprobs)),
                    rest.subspan(ids.size()).begin());
}

RowChoice read_record(std::span<const std::byte> record) {
  RecordHead head;
  std::memcpy(&head, record.data(), sizeof head);
  RowChoice choice;
  choice.id = head.id;
  choice.failed = head.failed != 0;
  choice.scores.logprob = head.logprob;
  choice.scores.rank = head.rank;
  choice.scores.top_ids.resize(static_cast<std::size_t>(head.alternatives));
  choice.scores.top_logprobs.resize(static_cast<std::size_t>(head.alternatives));
  const auto ids = std::as_writable_bytes(std::span(choice.scores.top_ids));
  const auto values = std::as_writable_bytes(std::span(choice.scores.top_logprobs));
  const auto rest = record.subspan(sizeof head);
  std::ranges::copy(rest.first(ids.size()), ids.begin());
  std::ranges::copy(rest.subspan(ids.size(), values.size()), values.begin());
  return choice;
}

}  // namespace troupe
