#include "runtime/actor/cluster_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ProcessMetrics counted(double calls, double load) {
  MetricsRegistry registry;
  registry.counter("calls_total", "").add(calls);
  registry.gauge("load", "").set(load);
  return {registry.snapshot(), {}};
}

TEST(ClusterMetrics, of_a_process_that_has_ended_keep_the_counts_and_not_the_gauges) {
  ClusterMetrics metrics;
  metrics.take(0, 1, counted(3, 10));
  metrics.take(0, 2, counted(4, 20));
  metrics.take(1, 1, counted(5, 40));
  EXPECT_THAT(metrics.sum({}).text(), AllOf(HasSubstr("calls_total 12\n"), HasSubstr("load 70\n")));
  metrics.keep_only(0, {2});
  EXPECT_THAT(metrics.sum({}).text(), AllOf(HasSubstr("calls_total 12\n"), HasSubstr("load 60\n")));
  metrics.take_last(0, 2, counted(9, 99));
  EXPECT_THAT(metrics.sum({}).text(), AllOf(HasSubstr("calls_total 17\n"), HasSubstr("load 40\n")));
  metrics.keep_only(0, {});
  EXPECT_THAT(metrics.sum(counted(1, 1)).text(),
              AllOf(HasSubstr("calls_total 18\n"), HasSubstr("load 41\n")));
}

TEST(ClusterMetrics, count_a_process_once_that_ends_while_it_is_asked) {
  ClusterMetrics metrics;
  metrics.begin_round();
  metrics.take_last(0, 1, counted(5, 0));
  metrics.take(0, 1, counted(4, 0));  // what it had answered before
  metrics.end_round();
  EXPECT_THAT(metrics.sum({}).text(), HasSubstr("calls_total 5\n"));
}

TEST(ClusterMetrics, name_the_methods_of_classes_that_only_others_know) {
  const auto made = [](const std::string& method) {
    return MetricsSnapshot{{"troupe_calls_made_total",
                            "",
                            MetricKind::counter,
                            {},
                            {{{{"actor_type", "Shop"}, {"method", method}}, {2}}}}};
  };
  ClusterMetrics metrics;
  metrics.take(0, 1, {made("#1"), {}});
  metrics.take(0, 2, {made("#7"), {{"Shop", {"open", "sell"}}}});
  const std::string text = metrics.sum({made("sell"), {}}).text();
  EXPECT_THAT(text, HasSubstr("{actor_type=\"Shop\",method=\"sell\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("{actor_type=\"Shop\",method=\"#7\"} 2\n"));
}

}  // namespace
}  // namespace troupe
