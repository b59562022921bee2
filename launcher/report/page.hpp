#pragma once

#include <string_view>

namespace troupe {

/// The report's page but for its data: the files of launcher/report/page, put into the program when
/// it is built.
extern const std::string_view page_style;
extern const std::string_view page_body;  ///< from <body> on, not closed
extern const std::string_view page_script;

}  // namespace troupe
