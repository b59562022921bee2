#include <cstdio>

#include <unistd.h>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// A line of `status`.
struct Row {
  ReachedCluster reached;
  bool is_removed = false;  ///< its file, by --clean
};

/// A member of the driver's answer; empty if there is none.
template <class T>
auto of_answer(T StatusReply::* member) {
  return [member](const Row& row) {
    return row.reached.status.ok() ? std::optional<T>((*row.reached.status).*member) : std::nullopt;
  };
}

std::string nodes_cell(const Row& row) {
  if (!row.reached.status.ok()) return "";
  const StatusReply& status = *row.reached.status;
  const auto nodes =
      status.nodes_alive + status.nodes_lost + status.nodes_awaited + status.nodes_drained;
  return nodes == status.nodes_alive ? std::to_string(nodes)
                                     : fmt::format("{} of {}", status.nodes_alive, nodes);
}

Columns<Row> status_columns() {
  Columns<Row> columns = columns_of_part<Row>(
      cluster_columns(),
      [](const Row& row) -> const ClusterFile& { return row.reached.found.file; });
  Columns<Row> more{
      in_json<Row>("answers", [](const Row& row) { return row.reached.status.ok(); }),
      in_table<Row>("NODES", nodes_cell),
      both<Row>("ACTORS", "actors", of_answer(&StatusReply::actors)),
      both<Row>("GROUPS", "placement_groups", of_answer(&StatusReply::placement_groups)),
      in_json<Row>("nodes_alive", of_answer(&StatusReply::nodes_alive)),
      in_json<Row>("nodes_lost", of_answer(&StatusReply::nodes_lost)),
      in_json<Row>("nodes_awaited", of_answer(&StatusReply::nodes_awaited)),
      in_json<Row>("nodes_drained", of_answer(&StatusReply::nodes_drained)),
      in_json<Row>("program_state", of_answer(&StatusReply::program_state)),
      in_json<Row>("actors_restarting", of_answer(&StatusReply::actors_restarting)),
      in_json<Row>("job_folder", of_answer(&StatusReply::job_folder)),
      in_json<Row>("log_folder", of_answer(&StatusReply::log_folder)),
      in_json<Row>("why",
                   [](const Row& row) {
                     const auto& status = row.reached.status;
                     return status.ok() ? std::nullopt : std::optional(status.error().message);
                   }),
      in_json<Row>("file", [](const Row& row) { return row.reached.found.path; }),
      in_json<Row>("removed", [](const Row& row) { return row.is_removed; }),
  };
  columns.insert(columns.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  return columns;
}

/// What is to be known beside the table, each a paragraph.
std::string notes(const std::vector<Row>& rows, const std::vector<ClusterFile>& ended,
                  const StateCommand& command, std::size_t columns) {
  std::string text;
  for (const ClusterFile& cluster : ended) {
    text += paragraph(
        fmt::format("{} has ended and left its file, which is removed", describe(cluster)),
        columns);
  }
  for (const Row& row : rows) {
    if (row.reached.status.ok()) continue;
    std::string file;
    if (row.is_removed) file = "; its file is removed";
    if (command.cleans && !row.is_removed) {
      file = fmt::format("; it runs, so its file stays: {}", row.reached.found.path);
    }
    text += paragraph(fmt::format("{} does not answer: {}{}", describe(row.reached.found.file),
                                  row.reached.status.error().message, file),
                      columns);
  }
  return text;
}

/// Removes the file of a cluster, unless it is known to run; true if it did. Nothing that comes
/// over the network proves that a driver has ended, so this is for clusters that the user names.
bool remove_file(const ReachedCluster& cluster) {
  const bool runs = cluster.status.ok() || cluster.found.is_alive;
  return !runs && ::unlink(cluster.found.path.c_str()) == 0;
}

}  // namespace

Result<int> show_status(LinkLoop& loop, const StateCommand& command) {
  TROUPE_TRY(auto reached, reach_clusters(loop, command));
  if (command.cleans && reached.clusters.size() > 1) return several(reached.clusters, "are meant");
  std::vector<Row> rows;
  for (ReachedCluster& cluster : reached.clusters) {
    const bool goes = command.cleans && remove_file(cluster);
    rows.push_back({std::move(cluster), goes});
  }
  if (command.json) {
    print(JsonObject()
              .add_json("clusters", json_list(status_columns(), rows))
              .add_json("ended", json_list(cluster_columns(), reached.ended))
              .text() +
          "\n");
    return 0;
  }
  const std::size_t columns = terminal_columns();
  if (rows.empty()) {
    TROUPE_TRY(const std::string folder, folder_of(command));
    print(paragraph(fmt::format("no cluster of yours runs (looked in {})", folder), columns));
  } else {
    print(text_table(status_columns(), rows).text(columns));
  }
  for (const Row& row : rows) {
    const auto& status = row.reached.status;
    if (!status.ok() || status->program_state.empty()) continue;
    print(paragraph(fmt::format("{}: {}", row.reached.found.file.name, status->program_state),
                    columns));
  }
  std::fputs(notes(rows, reached.ended, command, columns).c_str(), stderr);
  return 0;
}

}  // namespace troupe
