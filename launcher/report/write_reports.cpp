#include "launcher/report/write_reports.hpp"

#include "launcher/report/report_html.hpp"
#include "launcher/report/report_json.hpp"
#include "launcher/report/trace_json.hpp"
#include "launcher/report/write_file.hpp"

namespace troupe {

Result<void> write_reports(const JobRecorder& job, const std::string& folder) {
  const auto report = report_json(job);
  const Result<void> written[] = {
      write_file(folder + "/report.json", to_text(report)),
      write_file(folder + "/report.html", report_html(report)),
      write_file(folder + "/trace.json", trace_json(job.processes(), job.began_us() * 1000))};
  for (const Result<void>& file : written) TROUPE_CHECK(file);
  return {};
}

}  // namespace troupe
