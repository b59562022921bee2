#include "runtime/state/cluster_file.hpp"
#include "runtime/state/messages.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Bytes some_request(Mutator& mutator) {
  const std::vector<StateRequest> requests{AskStatus{},
                                           AskNodes{256},
                                           AskActors{7, 10, 9, 8},
                                           AskGroups{3},
                                           AskLog{"worker-0", -100, 4096},
                                           AskStop{"somebody"},
                                           AskDrain{"h2", "somebody"},
                                           AskJoin{{"h3"}, "somebody"},
                                           AskObjects{{7, 9}, 256}};
  return encode_request(requests[mutator.below(requests.size())]);
}

Bytes some_reply(Mutator& mutator) {
  NodeState node;
  node.name = "node0";
  node.total.custom["slots"] = 3;
  ActorState actor;
  actor.name = "worker-0";
  actor.devices = {0, 1};
  EndedActor ended;
  ended.message = "it was killed";
  GroupState group{{1, "pair", PlacementStrategy::spread, {{{}, "node0", {0}, false}}}, {{}}, {1}};
  ObjectInfo object;
  object.owner = "worker-0";
  LogPiece piece;
  piece.path = "/log";
  piece.bytes.resize(mutator.below(40));
  StatusReply status;
  status.log_folder = "/logs";
  status.program_state = "1 of 2 step domains serve";
  const std::vector<StateReply> replies{status,
                                        NodesReply{{node}, false},
                                        ActorsReply{{actor}, 1, {ended}},
                                        GroupsReply{{group}, true},
                                        piece,
                                        StopReply{},
                                        ChangeReply{"node 'h2' is drained"},
                                        StateRefusal{ErrorCode::io, "no"},
                                        ObjectsReply{{{object}, 1}, {"worker-1"}}};
  return encode_reply(replies[mutator.below(replies.size())]);
}

}  // namespace

void changed_state_messages(Effort effort) {
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string request = text_of(some_request(mutator)), reply = text_of(some_reply(mutator));
    if (!mutator.one_in(8)) {
      request = mutator.bytes(request);
      reply = mutator.bytes(reply);
    }
    if (const auto decoded = decode_request(bytes_of(request)); decoded.ok()) {
      ++taken;
      EXPECT_EQ(text_of(encode_request(*decoded)), request);
    }
    if (const auto decoded = decode_reply(bytes_of(reply)); decoded.ok()) {
      ++taken;
      EXPECT_TRUE(decode_reply(encode_reply(*decoded)).ok());
    }
  });
  EXPECT_GT(taken, 0U);
}

void changed_cluster_files(Effort effort) {
  ClusterFile file{.protocol = state_protocol, .name = "stories", .id = "0a", .program = "/bin/it"};
  file.host = "c7";
  file.driver = {"id c7", "boot", "pid:[1] time:[2]", 77, 88};
  file.address = "10.0.0.7";
  file.port = 4242;
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    const std::string text = mutator.one_in(8) ? file.text() : mutator.bytes(file.text());
    const auto parsed = ClusterFile::parse(text);
    if (!parsed.ok()) return;
    ++taken;
    const auto again = ClusterFile::parse(parsed->text());
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->text(), parsed->text());
    EXPECT_EQ(parsed->file_name().find('/'), std::string::npos);
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
