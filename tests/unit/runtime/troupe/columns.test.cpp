#include "runtime/troupe/columns.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using nlohmann::json;

struct Row {
  std::string name;
  int pid = 0;
  std::optional<std::uint64_t> actors;
  std::vector<int> devices;
  bool is_lost = false;
};

Columns<Row> columns() {
  return {
      both<Row>("NAME", "name", &Row::name),
      both<Row>("PID", "pid", &Row::pid,
                [](const Row& row) { return row.pid == 0 ? "" : std::to_string(row.pid); }),
      both<Row>("ACTORS", "actors", &Row::actors),
      both<Row>("DEVICES", "devices", &Row::devices),
      in_table<Row>("STATE", [](const Row& row) { return row.is_lost ? "lost" : "held"; }),
      in_json<Row>("is_lost", &Row::is_lost),
  };
}

TEST(Columns, one_list_gives_the_table_and_the_json) {
  const std::vector<Row> rows{{"a", 7, 3, {0, 1}, false}, {"b\"", 0, std::nullopt, {}, true}};
  EXPECT_EQ(text_table(columns(), rows).text(),
            "NAME  PID  ACTORS  DEVICES  STATE\n"
            "a     7    3       0,1      held\n"
            "b\"    -    -       -        lost\n");
  const json list = json::parse(json_list(columns(), rows));
  EXPECT_EQ(list[0],
            json::parse(R"({"name":"a","pid":7,"actors":3,"devices":[0,1],"is_lost":false})"));
  EXPECT_EQ(list[1],
            json::parse(R"({"name":"b\"","pid":0,"actors":null,"devices":[],"is_lost":true})"));
}

TEST(Columns, of_a_part_are_those_of_the_whole) {
  struct Whole {
    Row row;
  };
  const auto lifted = columns_of_part<Whole>(columns(), &Whole::row);
  const std::vector<Whole> rows{{{"a", 7, 3, {}, false}}};
  EXPECT_EQ(json_list(lifted, rows), json_list(columns(), std::vector<Row>{rows[0].row}));
  EXPECT_EQ(text_table(lifted, rows).text(),
            text_table(columns(), std::vector<Row>{rows[0].row}).text());
}

TEST(Columns, without_rows_give_a_heading_and_an_empty_list) {
  EXPECT_EQ(text_table(columns(), {}).text(), "NAME  PID  ACTORS  DEVICES  STATE\n");
  EXPECT_EQ(json_list(columns(), {}), "[]");
}

}  // namespace
}  // namespace troupe
