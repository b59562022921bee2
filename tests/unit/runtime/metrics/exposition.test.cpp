#include "runtime/metrics/exposition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(Exposition, writes_the_text_format_of_prometheus) {
  const double bounds[] = {0.5, 1};
  HistogramBuckets histogram(bounds);
  for (const double value : {0.25, 0.5, 0.75, 7.0}) histogram.observe(value);
  Exposition out(MetricLabels{{"model", "a \"b\"\\\n"}});
  out.gauge("load", "How busy.", 0.5);
  const std::pair<std::string, std::uint64_t> values[] = {{"stop", 3}, {"length", 0}};
  out.counters("done_total", "What is done.", "why", values);
  out.histogram("wait_seconds", "Waiting.", histogram);
  EXPECT_EQ(std::move(out).text(),
            "# HELP load How busy.\n"
            "# TYPE load gauge\n"
            "load{model=\"a \\\"b\\\"\\\\\\n\"} 0.5\n"
            "# HELP done_total What is done.\n"
            "# TYPE done_total counter\n"
            "done_total{model=\"a \\\"b\\\"\\\\\\n\",why=\"stop\"} 3\n"
            "done_total{model=\"a \\\"b\\\"\\\\\\n\",why=\"length\"} 0\n"
            "# HELP wait_seconds Waiting.\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_bucket{model=\"a \\\"b\\\"\\\\\\n\",le=\"0.5\"} 2\n"
            "wait_seconds_bucket{model=\"a \\\"b\\\"\\\\\\n\",le=\"1\"} 3\n"
            "wait_seconds_bucket{model=\"a \\\"b\\\"\\\\\\n\",le=\"+Inf\"} 4\n"
            "wait_seconds_sum{model=\"a \\\"b\\\"\\\\\\n\"} 8.5\n"
            "wait_seconds_count{model=\"a \\\"b\\\"\\\\\\n\"} 4\n");
}

TEST(Exposition, has_no_byte_that_makes_all_of_it_unreadable) {
  Exposition out(MetricLabels{{"model", "Märchen\xff"}});
  out.gauge("load", "How busy.", 1);
  EXPECT_THAT(std::move(out).text(), HasSubstr("load{model=\"Märchen\uFFFD\"} 1\n"));
}

TEST(Exposition, escapes_backslashes_and_ends_of_lines_of_a_help_and_no_quotes) {
  Exposition out({});
  out.gauge("load", "a \"b\" \\ c\nd", 1);
  EXPECT_EQ(std::move(out).text(),
            "# HELP load a \"b\" \\\\ c\\nd\n"
            "# TYPE load gauge\n"
            "load 1\n");
}

}  // namespace
}  // namespace troupe
