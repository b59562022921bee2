#include "runtime/troupe/ask_actors.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "runtime/troupe/reach.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {

Result<AskedActors> ask_actors(StateClient& client, std::uint64_t limit, std::uint32_t ended) {
  if (limit == 0) limit = std::numeric_limits<std::uint64_t>::max();
  const auto page = [](std::uint64_t wanted) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, max_actors_page));
  };
  AskedActors asked;
  AskActors ask;
  std::uint64_t actors_wanted = limit, ended_wanted = ended;
  while (actors_wanted > 0 || ended_wanted > 0) {
    ask.actors = page(actors_wanted);
    ask.ended = page(ended_wanted);
    TROUPE_TRY(auto reply, client.get<ActorsReply>(ask, answer_limit));
    // A page that is not full is the last one.
    actors_wanted -= reply.actors.size() < ask.actors ? actors_wanted : reply.actors.size();
    ended_wanted -= reply.ended.size() < ask.ended ? ended_wanted : reply.ended.size();
    std::ranges::move(reply.actors, std::back_inserter(asked.actors));
    std::ranges::move(reply.ended, std::back_inserter(asked.ended));
    asked.left_out = reply.all_actors - std::min(reply.all_actors, asked.actors.size());
    if (!asked.actors.empty()) ask.after = asked.actors.back().id;
    if (!asked.ended.empty()) ask.ended_before = asked.ended.back().id;
  }
  return asked;
}

std::string left_out_note(const AskedActors& asked, std::size_t columns) {
  return paragraph(fmt::format("{} of {} actors are left out: --limit N shows N, --limit 0 all",
                               asked.left_out, asked.left_out + asked.actors.size()),
                   columns);
}

}  // namespace troupe
