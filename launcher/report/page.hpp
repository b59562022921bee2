#pragma once

#include <string_view>

namespace troupe {

// The files of launcher/report/page, embedded into the program at build time.

extern const std::string_view page_style;
extern const std::string_view page_plots;  ///< the script that draws plots

/// The parts specific to one kind of page.
struct PagePart {
  std::string_view body;    ///< from <body> on, not closed
  std::string_view script;  ///< runs after page_plots; reads the page's data
};
extern const PagePart report_page;
extern const PagePart sweep_page_part;
extern const PagePart eval_page_part;

}  // namespace troupe
