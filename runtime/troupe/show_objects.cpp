#include <fmt/ranges.h>

#include "runtime/base/format_bytes.hpp"
#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/ask_pages.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

Columns<ObjectInfo> object_columns() {
  using Row = ObjectInfo;
  return {
      in_json<Row>(
          "id",
          [](const Row& row) { return fmt::format("{:016x}-{}", row.id.owner, row.id.number); }),
      both<Row>("OWNER", "owner", &Row::owner),
      both<Row>("OBJECT", "number", [](const Row& row) { return row.id.number; }),
      both<Row>("NODE", "node", &Row::node),
      both<Row>("SIZE", "bytes", &Row::bytes,
                [](const Row& row) { return format_bytes(row.bytes); }),
      both<Row>("WHERE", "where", [](const Row& row) { return to_string(row.place); }),
      both<Row>("COPIES", "copies", &Row::copies),
      both<Row>("BORROWERS", "borrowers", &Row::borrowers),
      both<Row>("PINS", "pins", &Row::pins),
      both<Row>(
          "AGE", "created", [](const Row& row) { return iso_time(row.created_ms); },
          [](const Row& row) { return age(row.created_ms); }),
  };
}

}  // namespace

Result<int> show_objects(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto asked, ask_objects(*cluster.client, command.limit));
  if (command.json) {
    std::vector<std::string> silent;
    for (const std::string& name : asked.silent) silent.push_back(json_string(name));
    print_json(cluster.found.file, {{"objects", json_list(object_columns(), asked.objects)},
                                    {"objects_left_out", json_of(asked.left_out)},
                                    {"silent", json_array(silent)}});
    return 0;
  }
  const std::size_t columns = terminal_columns();
  print(text_table(object_columns(), asked.objects).text(columns));
  if (asked.left_out > 0) {
    print(left_out_note(asked.left_out, asked.objects.size(), "objects", columns));
  }
  if (!asked.silent.empty()) {
    print(
        paragraph(fmt::format("not told, as they do not answer: {}", fmt::join(asked.silent, ", ")),
                  columns));
  }
  return 0;
}

}  // namespace troupe
