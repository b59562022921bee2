#include "runtime/metrics/metrics_registry.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/metrics/metrics_sum.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(MetricsRegistry, gives_the_same_series_for_the_same_name_and_labels_in_any_order) {
  MetricsRegistry registry;
  const Counter one = registry.counter("sold_total", "Sold.", {{"kind", "hat"}, {"at", "x"}});
  const Counter same = registry.counter("sold_total", "", {{"at", "x"}, {"kind", "hat"}});
  const Counter other = registry.counter("sold_total", "Sold.", {{"kind", "cap"}, {"at", "x"}});
  one.add();
  same.add(2);
  other.add(0.5);
  EXPECT_EQ(one.value(), 3);
  const MetricsSnapshot all = registry.snapshot();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].help, "Sold.");
  ASSERT_EQ(all[0].series.size(), 2U);
  EXPECT_THAT(all[0].series[0].values, ElementsAre(0.5));
  EXPECT_THAT(all[0].series[1].values, ElementsAre(3));
}

TEST(MetricsRegistry, counters_never_fall_and_gauges_do) {
  MetricsRegistry registry;
  const Counter counter = registry.counter("a_total", "");
  counter.add(2);
  counter.add(-1);
  EXPECT_EQ(counter.value(), 2);
  const Gauge gauge = registry.gauge("a", "");
  gauge.set(5);
  gauge.subtract(7);
  EXPECT_EQ(gauge.value(), -2);
}

TEST(MetricsRegistry, counts_values_in_buckets_whose_bounds_are_inclusive) {
  MetricsRegistry registry;
  const double bounds[] = {1, 10};
  const Histogram histogram = registry.histogram("seconds", "", bounds);
  for (const double value : {0.5, 1.0, 10.0, 11.0, 2.0}) histogram.observe(value);
  EXPECT_THAT(registry.snapshot()[0].series[0].values, ElementsAre(2, 2, 1, 24.5));
}

TEST(MetricsRegistry, what_prometheus_does_not_allow_counts_nothing) {
  MetricsRegistry registry;
  const double falling[] = {2, 1};
  registry.counter("", "").add();
  registry.counter("7up", "").add();
  registry.counter("a-b", "").add();
  registry.counter("ok", "", {{"a:b", ""}}).add();
  registry.counter("ok", "", {{"__name__", ""}}).add();
  registry.counter("ok", "", {{"a", "1"}, {"a", "2"}}).add();
  registry.histogram("ok", "", falling).observe(1);
  registry.histogram("ok", "", {{"le", "1"}}).observe(1);
  EXPECT_THAT(registry.snapshot(), IsEmpty());
  registry.gauge("ok", "").set(1);
  registry.counter("ok", "").add();  // which is a gauge already
  ASSERT_EQ(registry.snapshot().size(), 1U);
  EXPECT_THAT(registry.snapshot()[0].series[0].values, ElementsAre(1));
}

TEST(MetricsRegistry, has_a_bounded_number_of_series) {
  MetricsRegistry registry;
  for (std::size_t i = 0; i < MetricsRegistry::max_series + 5; ++i) {
    registry.counter("many_total", "", {{"id", std::to_string(i)}}).add();
  }
  EXPECT_EQ(registry.snapshot()[0].series.size(), MetricsRegistry::max_series);
}

TEST(MetricsRegistry, counts_what_many_threads_add_at_once) {
  MetricsRegistry registry;
  constexpr int threads = 4, each = 20'000;
  {
    std::vector<std::jthread> adders;
    for (int i = 0; i < threads; ++i) {
      adders.emplace_back([&registry] {
        const Counter counter = registry.counter("hits_total", "");
        const Histogram histogram = registry.histogram("seconds", "");
        for (int n = 0; n < each; ++n) {
          counter.add();
          histogram.observe(0.25);
        }
      });
    }
  }
  EXPECT_EQ(registry.counter("hits_total", "").value(), threads * each);
  EXPECT_EQ(registry.snapshot()[1].series[0].values.back(), threads * each * 0.25);
}

TEST(MetricsSum, adds_the_series_of_processes_and_keeps_counts_of_those_that_ended) {
  MetricsRegistry one, two;
  one.counter("calls_total", "Calls.", {{"to", "a"}}).add(1);
  two.counter("calls_total", "Calls.", {{"to", "a"}}).add(2);
  two.counter("calls_total", "Calls.", {{"to", "b"}}).add(4);
  one.gauge("load", "Load.").set(1);
  two.gauge("load", "Load.").set(8);
  MetricsSum sum;
  sum.add(one.snapshot(), false);  // it has ended
  sum.add(two.snapshot());
  EXPECT_EQ(sum.text(),
            "# HELP calls_total Calls.\n"
            "# TYPE calls_total counter\n"
            "calls_total{to=\"a\"} 3\n"
            "calls_total{to=\"b\"} 4\n"
            "# HELP load Load.\n"
            "# TYPE load gauge\n"
            "load 8\n");
}

TEST(MetricsSum, leaves_out_what_has_another_form_than_the_same_name_before) {
  MetricsRegistry one, two;
  one.gauge("a", "").set(1);
  two.counter("a", "").add(5);
  MetricsSum sum;
  sum.add(one.snapshot());
  sum.add(two.snapshot());
  sum.add({{"b_total", "", MetricKind::counter, {}, {{{}, {1, 2}}}}});  // two values
  EXPECT_THAT(sum.text(), HasSubstr("\na 1\n"));
  EXPECT_EQ(sum.text().find("b_total 1"), std::string::npos);
}

}  // namespace
}  // namespace troupe
