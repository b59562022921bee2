#include "launcher/report/report_html.hpp"

#include <gtest/gtest.h>

#include "launcher/report/report_json.hpp"
#include "tests/unit/launcher/report/small_job.hpp"

namespace troupe::report_test {
namespace {

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

/// The data that the page's script reads.
nlohmann::json data_of(const std::string& page) {
  const std::string begin = "id=\"report\">";
  const auto from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(ReportHtml, carries_the_report) {
  const auto report = report_json(*small_job());
  EXPECT_EQ(data_of(report_html(report)), nlohmann::json(report));
}

TEST(ReportHtml, needs_nothing_from_elsewhere) {
  const std::string page = report_html(report_json(*small_job()));
  for (const auto* word : {"http://", "https://", " src=", "@import", "url(", "fetch(", "<link"}) {
    // The namespace of SVG is not a network address.
    const std::size_t allowed = std::string_view(word) == "http://" ? 1 : 0;
    EXPECT_EQ(count(page, word), allowed) << word;
  }
  EXPECT_NE(page.find("http://www.w3.org/2000/svg"), page.npos);
}

TEST(ReportHtml, takes_text_of_files_for_text) {
  const std::string plain = report_html(report_json(*small_job()));
  JobFacts hostile = facts();
  hostile.name = "</title><script>alert(1)</script>";
  hostile.model_path = "</script><img onerror=alert(2)>\xe2\x80\xa8<!--";
  hostile.config_yaml = "]]></style></script>\xff";
  const std::string page = report_html(report_json(*small_job(hostile)));
  for (const auto* word : {"<script", "</script>", "<!--", "<img", "</title>", "</style>"}) {
    EXPECT_EQ(count(page, word), count(plain, word)) << word;
  }
  EXPECT_EQ(data_of(page).at("job").at("name"), hostile.name);
  EXPECT_EQ(data_of(page).at("job").at("model"), hostile.model_path);
  EXPECT_NE(page.find("<title>&lt;/title&gt;&lt;script&gt;alert(1)"), page.npos);
}

}  // namespace
}  // namespace troupe::report_test
