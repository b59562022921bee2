#include <algorithm>
#include <cstdio>
#include <set>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/ask_pages.hpp"
#include "runtime/troupe/commands.hpp"
#include "runtime/troupe/log_reader.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds poll_interval{250};
/// While a log is followed the driver may be suspended for long; a host that is gone ends the link.
constexpr std::chrono::hours follow_limit{24 * 365};
/// For a driver that has closed its links to write its last lines.
constexpr std::chrono::milliseconds end_limit{2000};
/// A longer line is printed in parts.
constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// Prints a log: bytes as they are, or whole lines with the log's name or as JSON.
class LogPrinter {
 public:
  enum class Form { bytes, named_lines, json };

  LogPrinter(LogReader reader, Form form) : reader_(std::move(reader)), form_(form) {}

  LogReader& reader() { return reader_; }
  void print(std::string_view text) {
    if (text.empty()) return;
    if (form_ == Form::bytes) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      return;
    }
    part_ += text;
    std::size_t begin = 0;
    for (auto end = part_.find('\n'); end != part_.npos; end = part_.find('\n', begin)) {
      print_line(std::string_view(part_).substr(begin, end - begin));
      begin = end + 1;
    }
    part_.erase(0, begin);
    if (part_.size() >= max_line_bytes) finish();
  }
  /// The last line may lack its end.
  void finish() {
    if (!part_.empty()) print_line(part_);
    part_.clear();
  }

 private:
  void print_line(std::string_view line) {
    if (form_ == Form::json) {
      const JsonObject json =
          JsonObject().add("log", reader_.name()).add("path", reader_.path()).add("line", line);
      std::puts(json.text().c_str());
    } else {
      std::fputs((reader_.name() + ": ").append(line).append("\n").c_str(), stdout);
    }
  }

  LogReader reader_;
  const Form form_;
  std::string part_;  ///< of a line
};

/// A line of the list of logs.
struct LogRow {
  std::string log, of, path;
};

Columns<LogRow> log_columns() {
  return {both<LogRow>("LOG", "log", &LogRow::log), both<LogRow>("OF", "of", &LogRow::of),
          both<LogRow>("PATH ON THE DRIVER'S HOST", "path", &LogRow::path, [](const LogRow& row) {
            return row.path.empty() ? "(stderr of its driver or agent)" : row.path;
          })};
}

Result<int> list_logs(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto nodes, ask_nodes(*cluster.client));
  TROUPE_TRY(const auto actors, ask_actors(*cluster.client, command.limit, 0));
  const auto driver = cluster.client->get<LogPiece>(AskLog{"driver", 0, 0}, answer_limit);
  std::vector<LogRow> rows{{"driver", "driver", driver.ok() ? driver->path : ""}};
  for (const auto& node : nodes) rows.push_back({node.name, "agent", node.log_path});
  for (const auto& actor : actors.actors) {
    if (actor.node != "driver") rows.push_back({actor.name, actor.type, actor.log_path});
  }
  if (command.json) {
    print_json(cluster.found.file, {{"logs", json_list(log_columns(), rows)},
                                    {"actors_left_out", json_of(actors.left_out)}});
    return 0;
  }
  const std::size_t columns = terminal_columns();
  print(text_table(log_columns(), rows).text(columns));
  if (actors.left_out > 0) print(left_out_note(actors, columns));
  return 0;
}

/// Looks at each log for the first time: says which are shared, leaves out those that are in
/// another one's file, and goes to the last lines. Errors: not_found for a log that is not there.
Result<std::vector<LogPrinter>> open_logs(const ReachedCluster& cluster,
                                          const StateCommand& command) {
  using Form = LogPrinter::Form;
  const Form form = command.json              ? Form::json
                    : command.logs.size() > 1 ? Form::named_lines
                                              : Form::bytes;
  std::vector<LogPrinter> printers;
  std::set<std::string> shared;
  for (const std::string& name : command.logs) {
    TROUPE_TRY(const auto piece, cluster.client->get<LogPiece>(AskLog{name, 0, 0}, answer_limit));
    if (!piece.is_there && !command.follows) {
      return fail(ErrorCode::not_found, "the log {} is not there (yet)", piece.path);
    }
    if (!piece.shared_with.empty()) {
      if (!shared.insert(piece.path).second) continue;
      std::fprintf(stderr, "all processes of node %s write to %s\n",
                   printable(piece.shared_with).c_str(), printable(piece.path).c_str());
    }
    printers.emplace_back(LogReader(*cluster.client, name), form);
    if (command.lines) {
      TROUPE_CHECK(printers.back().reader().go_to_last(*command.lines, answer_limit));
    }
  }
  return printers;
}

/// Prints what there is of all logs. True if the cluster has ended meanwhile.
Result<bool> print_new(std::vector<LogPrinter>& printers, std::chrono::milliseconds limit) {
  for (bool is_more = true; is_more;) {
    is_more = false;
    for (LogPrinter& printer : printers) {
      const auto text = printer.reader().next(limit);
      if (!text.ok() && text.error().code == ErrorCode::peer_died) return true;
      if (!text.ok()) return text.error();
      is_more |= !printer.reader().has_all();
      printer.print(*text);
    }
    std::fflush(stdout);
  }
  return false;
}

}  // namespace

Result<int> print_log(const ReachedCluster& cluster, const StateCommand& command) {
  if (command.logs.empty()) return list_logs(cluster, command);
  TROUPE_TRY(auto printers, open_logs(cluster, command));
  const auto limit = command.follows ? std::chrono::milliseconds(follow_limit) : answer_limit;
  while (true) {
    TROUPE_TRY(const bool has_ended, print_new(printers, limit));
    if (!command.follows) {
      for (LogPrinter& printer : printers) printer.finish();
      if (has_ended) return fail(ErrorCode::peer_died, "the cluster ended before all was read");
      return 0;
    }
    if (has_ended || cluster.client->wait_until_closed(poll_interval)) break;
  }
  // The last lines come after the links are closed.
  const bool is_here = cluster.found.is_alive;
  if (is_here) (void)wait_for_end(cluster.found.file.driver, end_limit);
  for (LogPrinter& printer : printers) {
    if (is_here) printer.print(printer.reader().rest());
    printer.finish();
  }
  std::fflush(stdout);
  std::fputs("the cluster has ended\n", stderr);
  return 0;
}

}  // namespace troupe
