#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/report/page.hpp"

namespace troupe {

/// A page with `data` for its script: one file that needs nothing else. Text of the data and the
/// title is data to it, never markup or script, whatever it holds.
std::string html_page(const std::string& title, const PagePart& part,
                      const nlohmann::ordered_json& data);

/// The page for what report_json made.
std::string report_html(const nlohmann::ordered_json& report);

}  // namespace troupe
