#include "launcher/bench/sweep/sweep_page.hpp"

#include "launcher/bench/sweep/sweep_report.hpp"
#include "launcher/report/report_html.hpp"

namespace troupe {

std::string sweep_page(const SweepFigures& figures, const std::string& heading) {
  nlohmann::ordered_json data = to_json(figures);
  data["heading"] = heading;
  data["table"] = to_table(figures);
  return html_page("Troupe: bench sweep", sweep_page_part, data);
}

}  // namespace troupe
