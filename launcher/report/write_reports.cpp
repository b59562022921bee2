#include "launcher/report/write_reports.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "launcher/report/report_html.hpp"
#include "launcher/report/report_json.hpp"
#include "launcher/report/trace_json.hpp"

namespace troupe {
namespace {

Result<void> write_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".new";
  errno = 0;
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  const int problem = errno;
  (void)std::remove(unfinished.c_str());
  return fail(ErrorCode::io, "cannot write {}: {}", path, std::strerror(problem));
}

}  // namespace

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
