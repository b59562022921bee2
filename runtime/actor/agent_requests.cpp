#include "runtime/actor/agent_requests.hpp"

#include <utility>
#include <vector>

#include "runtime/actor/argument_limit.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/call/callback.hpp"

namespace troupe {

Result<UniqueFd> AgentRequests::ask_region(std::string_view name, std::size_t bytes, bool release) {
  const Promise<UniqueFd> promise;
  tell_(RegionRequest{add(regions_, promise), std::string(name), bytes, release});
  return promise.future().get(limit_);
}

Result<void> AgentRequests::release_regions(std::string_view prefix) {
  TROUPE_TRY(const auto nothing, ask_region(prefix, 0, true));
  (void)nothing;
  return {};
}

void AgentRequests::on_reply(const RegionReply& reply, UniqueFd fd) {
  const auto waiting = take(regions_, reply.request);
  if (waiting.empty()) return;
  if (reply.ok) return waiting.mapped().complete(std::move(fd));
  waiting.mapped().complete(Error{reply.code, reply.message});
}

Result<Key> AgentRequests::channel_key(ActorId asker, const ChannelScope& scope) {
  const Promise<Key> promise;
  tell_(KeyRequest{add(keys_, promise), asker, scope});
  return promise.future().get(limit_);
}

void AgentRequests::call_key(const std::string& listener, CallKeys::Answer answer) {
  const Promise<Key> promise;
  tell_(CallKeyRequest{add(keys_, promise), listener});
  promise.future().then(std::move(answer));
}

void AgentRequests::on_reply(const KeyReply& reply) {
  const auto waiting = take(keys_, reply.request);
  if (waiting.empty()) return;
  if (reply.ok) return waiting.mapped().complete(reply.key.bytes);
  waiting.mapped().complete(Error{reply.code, reply.message});
}

void AgentRequests::spawn(ActorId owner, const SpawnOptions& options, std::string type,
                          EncodedArguments arguments, OnSpawned done) {
  if (auto fits = check_argument_bytes(type, arguments.bytes); !fits.ok()) {
    return run_callback(done, std::move(fits).error());
  }
  // The driver keeps the objects for later incarnations, this process until there is the first.
  std::vector<ObjectOnTheWire> objects;
  if (options.max_restarts != 0) {
    for (const auto& share : arguments.objects) objects.push_back({share->address(), 0, ""});
  }
  const std::uint64_t request =
      add<OnSpawned>(spawns_, [done = std::move(done), kept = std::move(arguments.objects)](
                                  Result<ActorAddress> actor) { done(std::move(actor)); });
  tell_(SpawnRequest{request, 0, owner, encode(options, objects), std::move(type),
                     std::move(arguments.bytes)});
}

void AgentRequests::on_reply(const SpawnReply& reply) {
  const auto waiting = take(spawns_, reply.request);
  if (waiting.empty()) return;
  if (!reply.ok) return run_callback(waiting.mapped(), Error{reply.code, reply.message});
  run_callback(waiting.mapped(), reply.actor);
}

}  // namespace troupe
