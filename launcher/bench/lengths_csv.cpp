#include "launcher/bench/lengths_csv.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <string_view>

namespace troupe {
namespace {

constexpr std::int32_t most_tokens = 1 << 24;

std::vector<std::string_view> cells_of(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    std::string_view cell = line.substr(0, comma);
    while (cell.starts_with(' ')) cell.remove_prefix(1);
    while (cell.ends_with(' ')) cell.remove_suffix(1);
    cells.push_back(cell);
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<std::vector<RequestLengths>> read_lengths_csv(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file) return fail_errno(errno, fmt::format("cannot open {}", path));
  if (!std::getline(file, line)) return fail(ErrorCode::corrupt_data, "{} is empty", path);
  const auto columns = cells_of(line);
  const auto column_of = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) -
                                    columns.begin());
  };
  const std::size_t prompt_column = column_of("prompt_tokens");
  const std::size_t answer_column = column_of("max_tokens");
  if (std::max(prompt_column, answer_column) == columns.size()) {
    return fail(ErrorCode::corrupt_data,
                "{}:1: expected the columns prompt_tokens and max_tokens, found {}", path, line);
  }
  const std::size_t width = columns.size();
  std::vector<RequestLengths> requests;
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    const auto cells = cells_of(line);
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (cells.size() != width) {
      return fail(ErrorCode::corrupt_data, "{}:{}: expected {} cells, found {}", path, number,
                  width, cells.size());
    }
    RequestLengths& request = requests.emplace_back();
    for (const auto& [column, value] : {std::pair{prompt_column, &request.prompt_tokens},
                                        std::pair{answer_column, &request.max_tokens}}) {
      const std::string_view cell = cells[column];
      const auto read = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
      if (read.ec != std::errc{} || read.ptr != cell.data() + cell.size() || *value < 1 ||
          *value > most_tokens) {
        return fail(ErrorCode::corrupt_data, "{}:{}: expected a number from 1 to {}, found \"{}\"",
                    path, number, most_tokens, cell);
      }
    }
  }
  if (file.bad()) return fail_errno(errno, fmt::format("cannot read {}", path));
  if (requests.empty()) return fail(ErrorCode::corrupt_data, "{} has no requests", path);
  return requests;
}

}  // namespace troupe
