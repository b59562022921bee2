#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/node/resources.hpp"
#include "runtime/troupe/json_text.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {

/// What a table and a JSON list show of each row, so that both come from one list of columns.
template <class Row>
struct Column {
  std::string_view heading;                       ///< in the table; empty: it is not there
  std::string_view key;                           ///< in the JSON; empty: it is not there
  std::function<std::string(const Row&)> cell;    ///< in the table
  std::function<std::string(const Row&)> member;  ///< JSON
};
template <class Row>
using Columns = std::vector<Column<Row>>;

/// Text that is JSON already.
struct Json {
  std::string text;
};

std::string json_of(std::string_view text);
std::string json_of(const Resources& resources);
std::string json_of(std::span<const int> numbers);
inline std::string json_of(Json json) { return std::move(json.text); }
/// A number, true or false.
template <std::integral Value>
std::string json_of(Value value) {
  return fmt::format("{}", value);
}
template <class T>
std::string json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : "null";
}

/// A cell; "-" for what is empty.
std::string cell_of(std::string_view text);
std::string cell_of(const Resources& resources);
std::string cell_of(std::span<const int> numbers);
template <std::integral Number>
std::string cell_of(Number number) {
  return fmt::format("{}", number);
}
template <class T>
std::string cell_of(const std::optional<T>& value) {
  return value ? cell_of(*value) : "-";
}

/// A column of the table and the JSON; `get` is a member of the row or a function of it.
template <class Row, class Get>
Column<Row> both(std::string_view heading, std::string_view key, Get get) {
  return {heading, key, [get](const Row& row) { return cell_of(std::invoke(get, row)); },
          [get](const Row& row) { return json_of(std::invoke(get, row)); }};
}
/// The same, for which the table has another text.
template <class Row, class Get, class Cell>
Column<Row> both(std::string_view heading, std::string_view key, Get get, Cell cell) {
  return {heading, key, [cell](const Row& row) { return cell_of(std::invoke(cell, row)); },
          [get](const Row& row) { return json_of(std::invoke(get, row)); }};
}
/// A column of the table alone.
template <class Row, class Cell>
Column<Row> in_table(std::string_view heading, Cell cell) {
  return {heading, "", [cell](const Row& row) { return cell_of(std::invoke(cell, row)); }, {}};
}
/// A member of the JSON alone.
template <class Row, class Get>
Column<Row> in_json(std::string_view key, Get get) {
  return {"", key, {}, [get](const Row& row) { return json_of(std::invoke(get, row)); }};
}

/// Columns of a part of the row.
template <class Row, class Part, class Get>
Columns<Row> columns_of_part(const Columns<Part>& columns, Get get) {
  Columns<Row> all;
  for (const Column<Part>& column : columns) {
    Column<Row> of_row{column.heading, column.key, {}, {}};
    if (column.cell) {
      of_row.cell = [cell = column.cell, get](const Row& row) {
        return cell(std::invoke(get, row));
      };
    }
    if (column.member) {
      of_row.member = [member = column.member, get](const Row& row) {
        return member(std::invoke(get, row));
      };
    }
    all.push_back(std::move(of_row));
  }
  return all;
}

template <class Row>
JsonObject json_object(const Columns<Row>& columns, const Row& row) {
  JsonObject json;
  for (const Column<Row>& column : columns) {
    if (!column.key.empty()) json.add_json(column.key, column.member(row));
  }
  return json;
}

template <class Row>
std::string json_list(const Columns<Row>& columns, const std::vector<Row>& rows) {
  std::vector<std::string> objects;
  objects.reserve(rows.size());
  for (const Row& row : rows) objects.push_back(json_object(columns, row).text());
  return json_array(objects);
}

template <class Row>
TextTable text_table(const Columns<Row>& columns, const std::vector<Row>& rows) {
  const auto line_of = [&](const auto& text_of) {
    std::vector<std::string> line;
    for (const Column<Row>& column : columns) {
      if (!column.heading.empty()) line.push_back(text_of(column));
    }
    return line;
  };
  TextTable table(line_of([](const Column<Row>& column) { return std::string(column.heading); }));
  for (const Row& row : rows) {
    table.add(line_of([&](const Column<Row>& column) { return column.cell(row); }));
  }
  return table;
}

}  // namespace troupe
