#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace troupe {

/// The page for what report_json made: one file that needs nothing else. Text of the report is data
/// to it, never markup or script, whatever it holds.
std::string report_html(const nlohmann::ordered_json& report);

}  // namespace troupe
