#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/process/report/report_files.hpp"
#include "tests/support/regex.hpp"

// report.html in a real browser: Debian's package chromium.

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

constexpr const char* browser = "/usr/bin/chromium";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Page {
  std::string dom;         ///< after its scripts have run
  std::string complaints;  ///< console output
};

/// Opens report.html `width` pixels wide.
Page open_page(const LauncherJob& job, int width, bool dark) {
  const auto folder = job.folder() / fmt::format("browser-{}-{}", width, dark);
  std::filesystem::create_directory(folder);
  const auto dom = folder / "dom.html", log = folder / "log.txt";
  const std::string command = fmt::format(
      "timeout -k 5 120 {} --headless=new --no-sandbox --disable-gpu --no-first-run "
      "--user-data-dir='{}/profile' --blink-settings=preferredColorScheme={} --window-size={},900 "
      "--virtual-time-budget=5000 --enable-logging=stderr --dump-dom 'file://{}.job/report.html' "
      "> '{}' 2> '{}' < /dev/null",
      browser, folder.string(), dark ? 0 : 1, width, job.output().string(), dom.string(),
      log.string());
  const int status = std::system(command.c_str());
  EXPECT_EQ(status, 0) << text_of(log);
  Page page{text_of(dom), ""};
  std::istringstream lines(text_of(log));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("CONSOLE") != line.npos) page.complaints += line + "\n";
  }
  return page;
}

/// Returns the part of the page with the plot `name`.
std::string plot_of(const Page& page, const std::string& name) {
  const auto at = page.dom.find("data-plot=\"" + name + "\"");
  if (at == page.dom.npos) return "";
  const auto begin = page.dom.rfind("<figure", at);
  return page.dom.substr(begin, page.dom.find("</figure>", at) - begin);
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

/// Returns the number of points in a series' line; -1 if there is none.
int drawn_points(const std::string& plot, const std::string& series) {
  const auto found = test::regex_search(
      plot, "<polyline[^>]*data-series=\"" + series + "\"[^>]*points=\"([^\"]*)\"");
  return found.empty() ? -1 : count(found[1], ",");
}

/// Expects the labels of the grid lines in a plot to be distinct.
void expect_distinct_labels(const std::string& plot) {
  std::set<std::string> seen;
  for (const auto& found : test::regex_search_all(plot, "text-anchor=\"end\">([^<]*)<")) {
    EXPECT_TRUE(seen.insert(found[1]).second) << found[1] << " stands there twice";
  }
  EXPECT_GE(seen.size(), 2U) << plot;
}

void expect_plots(const Page& page, const json& report, int width) {
  const auto points_of = [&](const std::string& name) {
    const auto found = test::regex_search(plot_of(page, name), "data-points=\"([0-9]+)\"");
    return found.empty() ? std::size_t{0} : std::stoul(found[1]);
  };
  const json& time = report.at("over_time");
  const std::map<std::string, std::vector<std::string>> lines = {
      {"throughput", {"output"}},
      {"requests", {"running", "waiting"}},
      {"kv", {"in use"}},
      {"prefix", {"found in the prefix cache", "computed"}}};
  for (const auto& [name, series] : lines) {
    SCOPED_TRACE(name);
    EXPECT_EQ(points_of(name), time.at("seconds").size()) << name;
    expect_distinct_labels(plot_of(page, name));
    for (const std::string& one : series) {
      const int drawn = drawn_points(plot_of(page, name), one);
      EXPECT_GT(drawn, 1) << name << ", " << one;
      EXPECT_LE(drawn, width) << name << ", " << one;
    }
  }
  for (const std::string name : {"ttft", "itl", "e2e"}) {
    const auto bins = report.at("latency_ms").at(name).at("bins").size();
    const std::string plot = plot_of(page, name);
    EXPECT_EQ(points_of(name), bins) << name;
    EXPECT_EQ(count(plot, "class=\"bar\""), static_cast<int>(bins)) << name;
    for (const auto* mark : {"P50", "P95", "P99"}) {
      EXPECT_EQ(count(plot, fmt::format("data-mark=\"{}\"", mark)), 1) << name;
    }
  }
  const auto ranks = report.at("ranks").size();
  EXPECT_EQ(points_of("ranks"), ranks);
  EXPECT_EQ(count(plot_of(page, "ranks"), "class=\"bar\""), static_cast<int>(5 * ranks));
  const json& experts = report.at("experts").at("rows");
  EXPECT_EQ(points_of("experts"), experts.size() * experts[0].size());
  EXPECT_EQ(count(plot_of(page, "experts"), "<canvas"), 1);
}

TEST(ReportPage, draws_every_plot_without_a_complaint_at_two_widths_in_two_themes) {
  if (::access(browser, X_OK) != 0) {
    GTEST_SKIP() << "there is no " << browser << " to open the page in (Debian's package chromium)";
  }
  const LauncherJob job;
  // A name that would end the script if it were not escaped.
  job.write_config(fmt::format(
      "name: \"</script><b>tales\"\nmodel: {{path: {}, served_model_name: [fable-moe]}}\n"
      "parallel: {{tensor_parallel_size: 2}}\nslo: {{ttft_ms: 1000}}\n"
      "job: {{input: in.jsonl, output: out.jsonl}}\n",
      demo_model().string()));
  job.write_input(some_requests(24));
  const Ended ended = job.run();
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json report = job_file(job, "report.json");
  for (const int width : {400, 1400}) {
    for (const bool dark : {false, true}) {
      SCOPED_TRACE(fmt::format("{} pixels, {}", width, dark ? "dark" : "light"));
      const Page page = open_page(job, width, dark);
      EXPECT_EQ(page.complaints, "");
      EXPECT_NE(page.dom.find("data-ready=\"yes\""), page.dom.npos) << "the script did not end";
      EXPECT_NE(page.dom.find(dark ? "data-scheme=\"dark\"" : "data-scheme=\"light\""),
                page.dom.npos);
      EXPECT_NE(page.dom.find("&lt;/script&gt;&lt;b&gt;tales</h1>"), page.dom.npos);
      expect_plots(page, report, width);
    }
  }
}

}  // namespace
}  // namespace troupe::launcher_test
