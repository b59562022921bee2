#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/report/page.hpp"

namespace troupe {

/// Returns a self-contained page with `data` for its script. Texts of the data and the title are
/// never taken as markup or script, whatever they hold.
std::string html_page(const std::string& title, const PagePart& part,
                      const nlohmann::ordered_json& data);

/// Returns the page for a report from report_json.
std::string report_html(const nlohmann::ordered_json& report);

}  // namespace troupe
