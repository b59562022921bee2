#include "launcher/job/pending_requests.hpp"

#include <utility>

namespace troupe {
namespace {

/// The bytes held for a request from here to the executor, however many choices it has. Its
/// prompt's tokens are held twice, by the scheduler and by the answer; a token of text has some
/// four bytes.
std::size_t size_in_bytes(const BatchRequest& line) {
  const Request& request = line.request;
  std::size_t bytes = sizeof(BatchRequest) + line.header.custom_id.size() +
                      2 * (request.prompt.size() + request.template_variables.size()) +
                      2 * request.prompt_ids.size() * sizeof(std::int32_t) +
                      request.stop_token_ids.size() * sizeof(std::int32_t) +
                      request.allowed_token_ids.size() * sizeof(std::int32_t) +
                      request.logit_bias.size() * sizeof(TokenBias);
  for (const auto* texts : {&request.stop, &request.bad_words}) {
    for (const std::string& text : *texts) bytes += text.size() + sizeof(std::string);
  }
  return bytes;
}

}  // namespace

std::size_t PendingRequests::add(BatchRequest& request) {
  request.request.id = next_id_++;
  const std::size_t bytes = size_in_bytes(request);
  pending_.emplace(request.request.id, Pending{std::move(request.header), bytes});
  bytes_ += bytes;
  return bytes;
}

std::optional<RequestHeader> PendingRequests::take(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return std::nullopt;
  std::optional header(std::move(found->second.header));
  bytes_ -= found->second.bytes;
  pending_.erase(found);
  return header;
}

}  // namespace troupe
