#include "models/kv_policy/kv_policy.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace troupe {

namespace {

constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::int32_t KvPolicy::first_drop(std::int32_t prompt_tokens) const {
  switch (kind) {
    case Kind::full:
      return never;
    case Kind::streaming:
      return capacity;
    case Kind::snapkv:
      return prompt_tokens > capacity ? prompt_tokens : never;
    case Kind::h2o:
      return std::max(prompt_tokens, capacity);
  }
  return never;
}

std::int32_t KvPolicy::dropped_before(std::int32_t position, std::int32_t prompt_tokens) const {
  const std::int32_t first = first_drop(prompt_tokens);
  if (position < first) return 0;
  if (kind == Kind::snapkv) return first - capacity;
  // At the first drop a cache of `first` entries is cut to capacity - drop_tokens.
  return first - capacity + ((position - first) / drop_tokens + 1) * drop_tokens;
}

std::int32_t KvPolicy::next_drop(std::int32_t position, std::int32_t prompt_tokens) const {
  const std::int32_t first = first_drop(prompt_tokens);
  if (position < first) return first;
  if (kind == Kind::snapkv) return never;
  const std::int64_t next =
      first + (std::int64_t{position - first} / drop_tokens + 1) * drop_tokens;
  return static_cast<std::int32_t>(std::min<std::int64_t>(next, never));
}

std::int64_t KvPolicy::most_entries(std::int64_t positions, std::int64_t prompt_tokens) const {
  switch (kind) {
    case Kind::full:
      break;
    case Kind::streaming:
      return std::min<std::int64_t>(positions, capacity);
    case Kind::snapkv:
      if (prompt_tokens <= capacity || positions <= prompt_tokens) break;
      return std::max(prompt_tokens, capacity + positions - prompt_tokens);
    case Kind::h2o:
      return std::min(positions, std::max<std::int64_t>(prompt_tokens, capacity));
  }
  return positions;
}

bool KvPolicy::observes(std::int32_t position, std::int32_t prompt_tokens) const {
  if (observes_every_row()) return true;
  return kind == Kind::snapkv && prompt_tokens > capacity && position < prompt_tokens &&
         position >= prompt_tokens - last_tokens;
}

std::string_view to_string(KvPolicy::Kind kind) {
  switch (kind) {
    case KvPolicy::Kind::full:
      return "full";
    case KvPolicy::Kind::streaming:
      return "streaming";
    case KvPolicy::Kind::snapkv:
      return "snapkv";
    case KvPolicy::Kind::h2o:
      return "h2o";
  }
  return "full";
}

std::string describe(const KvPolicy& policy) {
  switch (policy.kind) {
    case KvPolicy::Kind::full:
      break;
    case KvPolicy::Kind::streaming:
      return fmt::format("streaming: {} first and {} last tokens, {} dropped at once",
                         policy.first_tokens, policy.capacity - policy.first_tokens,
                         policy.drop_tokens);
    case KvPolicy::Kind::snapkv:
      return fmt::format("snapkv: {} tokens of a prompt, {} of them the last, pooled by {}",
                         policy.capacity, policy.last_tokens, policy.pooling_tokens);
    case KvPolicy::Kind::h2o:
      return fmt::format("h2o: {} tokens, {} of them the last, {} dropped at once", policy.capacity,
                         policy.last_tokens, policy.drop_tokens);
  }
  return "full";
}

}  // namespace troupe
