#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/process/report/report_files.hpp"
#include "tests/support/trace_events.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

struct Event {
  std::string kind;
  double begin = 0;  // microseconds
  double end = 0;
  std::int64_t step = -1;
};

/// The spans of each row, keyed by the process's name up to the first space.
std::map<std::string, std::vector<std::vector<Event>>> rows_of(const json& trace) {
  std::map<int, std::string> names;
  std::map<std::pair<int, int>, std::vector<Event>> threads;
  for (const auto& event : trace.at("traceEvents")) {
    const int pid = event.at("pid");
    if (event.at("name") == "process_name") {
      const std::string name = event.at("args").at("name");
      names[pid] = name.substr(0, name.find(' '));
    }
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), length = event.at("dur");
    threads[{pid, event.at("tid")}].push_back(
        {event.at("cat"), begin, begin + length,
         event.contains("args") ? event.at("args").at("step").get<std::int64_t>() : -1});
  }
  std::map<std::string, std::vector<std::vector<Event>>> rows;
  for (auto& [thread, events] : threads) rows[names.at(thread.first)].push_back(std::move(events));
  return rows;
}

std::set<std::string> kinds_of(const std::vector<std::vector<Event>>& threads) {
  std::set<std::string> kinds;
  for (const auto& events : threads) {
    for (const Event& event : events) kinds.insert(event.kind);
  }
  return kinds;
}

TEST(Trace, shows_every_process_and_stages_that_work_at_the_same_time) {
  const LauncherJob job;
  job.write_input(some_requests(32));
  const Ended ended = job.run(settings({"parallel.pipeline_parallel_size=2"}));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json trace = job_file(job, "trace.json");
  EXPECT_EQ(tests::TraceEvents::mistakes_of(trace), std::vector<std::string>());
  auto rows = rows_of(trace);
  using Kinds = std::set<std::string>;
  const auto has = [&](const std::string& row, const Kinds& expected) {
    const Kinds found = kinds_of(rows[row]);
    EXPECT_TRUE(std::ranges::includes(found, expected))
        << row << " shows " << json(found) << ", not all of " << json(expected);
  };
  has("launcher", {"read", "route", "write"});
  has("executor", {"answer", "apply", "plan", "report", "send_plan", "wait_result"});
  has("worker-0", {"forward", "stage", "step", "wait_plan"});
  has("worker-1", {"forward", "reply", "sample", "stage", "step", "wait_plan"});

  // The first stage computes a later step while the second one computes an earlier one.
  const auto& first = rows["worker-0"].front();
  const auto& second = rows["worker-1"].front();
  const bool overlap = std::ranges::any_of(first, [&](const Event& a) {
    return a.kind == "forward" && std::ranges::any_of(second, [&](const Event& b) {
             return b.kind == "forward" && b.step < a.step && b.begin < a.end && a.begin < b.end;
           });
  });
  EXPECT_TRUE(overlap) << "no two micro-batches were in the stages at the same time";
}

}  // namespace
}  // namespace troupe::launcher_test
