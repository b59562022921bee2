#include "runtime/troupe/print_log.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/troupe/json_text.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds poll_interval{250};

Result<LogPiece> piece_at(const ReachedCluster& cluster, const StateCommand& command,
                          std::int64_t offset, std::uint32_t bytes = max_log_piece) {
  return cluster.client->get<LogPiece>(AskLog{command.log, offset, bytes}, answer_limit);
}

/// Prints bytes as they are, or as lines of JSON; a line that is not whole waits for its rest.
class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}
  void print(const LogPiece& piece) {
    const std::string_view bytes(reinterpret_cast<const char*>(piece.bytes.data()),
                                 piece.bytes.size());
    if (!json_) {
      std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    } else {
      rest_ += bytes;
      path_ = piece.path;
      for (auto end = rest_.find('\n'); end != rest_.npos; end = rest_.find('\n')) {
        print_line(rest_.substr(0, end));
        rest_.erase(0, end + 1);
      }
    }
    std::fflush(stdout);
  }
  void finish() {
    if (!rest_.empty()) print_line(rest_);
  }

 private:
  void print_line(const std::string& line) {
    std::puts(JsonObject().add("path", path_).add("line", line).text().c_str());
  }

  const bool json_;
  std::string rest_, path_;
};

/// Where the last `lines` lines begin.
Result<std::uint64_t> begin_of_last(const ReachedCluster& cluster, const StateCommand& command,
                                    std::uint64_t lines) {
  TROUPE_TRY(const auto end, piece_at(cluster, command, 0, 0));
  std::uint64_t begin = end.size;
  std::uint64_t newlines = 0;
  while (begin > 0) {
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(begin, max_log_piece));
    const std::uint64_t from = begin - bytes;
    TROUPE_TRY(const auto piece,
               piece_at(cluster, command, static_cast<std::int64_t>(from), bytes));
    for (std::size_t i = piece.bytes.size(); i > 0; --i) {
      const std::uint64_t at = from + i - 1;
      // The newline that ends the last line begins no other one.
      if (piece.bytes[i - 1] == std::byte{'\n'} && at + 1 < end.size && ++newlines == lines) {
        return at + 1;
      }
    }
    begin = from;
  }
  return lines == 0 ? end.size : 0;
}

Result<int> list_logs(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto nodes, cluster.client->get<NodesReply>(AskNodes{}, answer_limit));
  TROUPE_TRY(const auto actors, cluster.client->get<ActorsReply>(AskActors{}, answer_limit));
  TextTable table({"LOG", "OF", "PATH ON THE DRIVER'S HOST"});
  std::vector<std::string> values;
  const auto add = [&](const std::string& log, const std::string& of, const std::string& path) {
    table.add({log, of, path.empty() ? "(stderr of its driver or agent)" : path});
    values.push_back(JsonObject().add("log", log).add("of", of).add("path", path).text());
  };
  StateCommand of_driver = command;
  of_driver.log = "driver";
  const auto driver = piece_at(cluster, of_driver, 0, 0);
  add("driver", "driver", driver.ok() ? driver->path : "");
  for (const auto& node : nodes.nodes) add(node.name, "agent", node.log_path);
  for (const auto& actor : actors.actors) {
    if (actor.node != "driver") add(actor.name, actor.type, actor.log_path);
  }
  const std::string text = command.json
                               ? JsonObject().add_json("logs", json_array(values)).text() + "\n"
                               : table.text(terminal_columns());
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

Result<int> print_log(const ReachedCluster& cluster, const StateCommand& command) {
  if (command.log.empty()) return list_logs(cluster, command);
  std::uint64_t at = 0;
  if (command.lines) {
    TROUPE_TRY(at, begin_of_last(cluster, command, *command.lines));
  }
  Printer printer(command.json);
  bool is_first = true;
  while (true) {
    auto piece = piece_at(cluster, command, static_cast<std::int64_t>(at));
    if (!piece.ok()) {
      if (!is_first && piece.error().code == ErrorCode::peer_died) break;
      return std::move(piece).error();
    }
    if (is_first && !piece->shared_with.empty()) {
      std::fprintf(stderr, "all processes of node %s write to %s\n",
                   printable(piece->shared_with).c_str(), printable(piece->path).c_str());
    }
    is_first = false;
    printer.print(*piece);
    at = piece->size < at ? 0 : piece->offset + piece->bytes.size();  // smaller: it is a new file
    if (!piece->bytes.empty() || at < piece->size) continue;
    if (!command.follows) break;
    if (cluster.client->wait_until_closed(poll_interval)) break;
  }
  printer.finish();
  if (command.follows) std::fputs("the cluster has ended\n", stderr);
  return 0;
}

}  // namespace troupe
