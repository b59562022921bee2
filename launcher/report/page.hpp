#pragma once

#include <string_view>

namespace troupe {

// The files of launcher/report/page, put into the program when it is built.

extern const std::string_view page_style;
extern const std::string_view page_plots;  ///< the script that draws plots

/// What one kind of page has of its own.
struct PagePart {
  std::string_view body;    ///< from <body> on, not closed
  std::string_view script;  ///< behind page_plots; reads the page's data
};
extern const PagePart report_page;
extern const PagePart sweep_page_part;

}  // namespace troupe
