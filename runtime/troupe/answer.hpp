#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/state/cluster_file.hpp"
#include "runtime/troupe/columns.hpp"

namespace troupe {

void print(const std::string& text);

/// "42 s", "5 min", "2 h 5 min", "3 d 4 h": since then, in milliseconds since 1970.
std::string age(std::int64_t since_ms);
/// ISO 8601, UTC.
std::string iso_time(std::int64_t ms);

/// What every answer says of its cluster.
const Columns<ClusterFile>& cluster_columns();

/// Prints {"cluster": {...}, ...} with the members, which are JSON already.
void print_json(const ClusterFile& cluster,
                std::initializer_list<std::pair<std::string_view, std::string>> members);

/// Who asks, for the log of a driver that is to do something: "process 7 of uid 1000 on c7".
std::string own_description();

}  // namespace troupe
