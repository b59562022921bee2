#include "runtime/troupe/ask_pages.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/reach.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {
namespace {

/// Asks until `take` has had the last page. It returns true if there are more, for which it changes
/// `ask`.
template <class Reply, class Ask, class Take>
Result<void> ask_pages(StateClient& client, Ask& ask, const Take& take) {
  for (bool more = true; more;) {
    TROUPE_TRY(auto reply, client.get<Reply>(ask, answer_limit));
    more = take(reply);
  }
  return {};
}

}  // namespace

Result<std::vector<NodeState>> ask_nodes(StateClient& client) {
  std::vector<NodeState> nodes;
  AskNodes ask;
  TROUPE_CHECK(ask_pages<NodesReply>(client, ask, [&](NodesReply& page) {
    std::ranges::move(page.nodes, std::back_inserter(nodes));
    ask.after = nodes.size();
    return !page.is_last && !page.nodes.empty();
  }));
  return nodes;
}

Result<std::vector<GroupState>> ask_groups(StateClient& client) {
  std::vector<GroupState> groups;
  AskGroups ask;
  TROUPE_CHECK(ask_pages<GroupsReply>(client, ask, [&](GroupsReply& page) {
    std::ranges::move(page.groups, std::back_inserter(groups));
    if (!groups.empty()) ask.after = groups.back().group.id;
    return !page.is_last && !page.groups.empty();
  }));
  return groups;
}

Result<AskedActors> ask_actors(StateClient& client, std::uint64_t limit, std::uint32_t ended) {
  if (limit == 0) limit = std::numeric_limits<std::uint64_t>::max();
  const auto page = [](std::uint64_t wanted) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, max_page));
  };
  AskedActors asked;
  std::uint64_t actors_wanted = limit, ended_wanted = ended;
  AskActors ask{.actors = page(actors_wanted), .ended = page(ended_wanted)};
  TROUPE_CHECK(ask_pages<ActorsReply>(client, ask, [&](ActorsReply& reply) {
    // A page that is not full is the last one.
    actors_wanted -= reply.actors.size() < ask.actors ? actors_wanted : reply.actors.size();
    ended_wanted -= reply.ended.size() < ask.ended ? ended_wanted : reply.ended.size();
    std::ranges::move(reply.actors, std::back_inserter(asked.actors));
    std::ranges::move(reply.ended, std::back_inserter(asked.ended));
    asked.left_out = reply.all_actors - std::min(reply.all_actors, asked.actors.size());
    if (!asked.actors.empty()) ask.after = asked.actors.back().id;
    if (!asked.ended.empty()) ask.ended_before = asked.ended.back().id;
    ask.actors = page(actors_wanted);
    ask.ended = page(ended_wanted);
    return actors_wanted > 0 || ended_wanted > 0;
  }));
  return asked;
}

Result<AskedObjects> ask_objects(StateClient& client, std::uint64_t limit) {
  if (limit == 0) limit = std::numeric_limits<std::uint64_t>::max();
  AskedObjects asked;
  AskObjects ask;
  const auto next_page = [&] {
    ask.objects =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(limit - asked.objects.size(), max_page));
  };
  next_page();
  TROUPE_CHECK(ask_pages<ObjectsReply>(client, ask, [&](ObjectsReply& reply) {
    const bool is_last = reply.page.objects.size() < ask.objects;
    std::ranges::move(reply.page.objects, std::back_inserter(asked.objects));
    asked.left_out =
        is_last ? 0
                : reply.page.all_objects - std::min(reply.page.all_objects, asked.objects.size());
    asked.silent = std::move(reply.silent);
    if (!asked.objects.empty()) ask.after = asked.objects.back().id;
    next_page();
    return !is_last && ask.objects > 0;
  }));
  return asked;
}

std::string left_out_note(std::uint64_t left_out, std::uint64_t shown, std::string_view what,
                          std::size_t columns) {
  return paragraph(fmt::format("{} of {} {} are left out: --limit N shows N, --limit 0 all",
                               left_out, left_out + shown, what),
                   columns);
}

}  // namespace troupe
