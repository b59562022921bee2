#include "runtime/actor/cluster_insight.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <limits>

#include <unistd.h>

#include "runtime/actor/process_inquiry.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/process/process_stack.hpp"
#include "runtime/task/task_service.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// For processes to answer: a busy one answers at once, a stopped one not at all.
constexpr milliseconds answer_limit{1000};
constexpr milliseconds stack_limit{4500};
/// Of the ways of so many questions the shortest tells most exactly what a clock says.
constexpr int clock_rounds = 5;

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::size_t> ClusterInsight::living_nodes() const {
  const auto infos = agents_.infos();
  std::vector<std::size_t> living;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].alive) living.push_back(i);
  }
  return living;
}

void ClusterInsight::take(std::size_t node, NodeReport report) {
  if (report.request != 0) return (void)inquiries_.take(node, std::move(report));
  for (const ProcessReport& last : report.processes) {
    const auto metrics = decode<ProcessMetrics>(last.bytes);
    const std::lock_guard lock(metrics_mutex_);
    if (metrics.ok()) metrics_.take_last(node, last.process, *metrics);
  }
}

void ClusterInsight::count_end(const ActorDown& down) {
  if (!own_) return;
  own_->metrics()
      .counter("troupe_actors_ended_total", "Actors, or incarnations of them, that have ended.",
               {{"actor_type", down.type}, {"cause", std::string(to_string(down.cause))}})
      .add();
}

void ClusterInsight::count_restart(const ActorAddress& again) {
  own_->metrics()
      .counter("troupe_actor_restarts_total", "Restarts of actors.", {{"actor_type", again.type}})
      .add();
}

std::string ClusterInsight::metrics_text() {
  const std::lock_guard one_round(round_);
  const auto infos = agents_.infos();
  {
    const std::lock_guard lock(metrics_mutex_);
    metrics_.begin_round();
  }
  const auto answers = inquiries_.ask(living_nodes(), Inquiry::metrics, 0, answer_limit);
  std::array<double, 2> nodes{};
  const std::lock_guard lock(metrics_mutex_);
  for (const NodeInquiries::Answer& answer : answers) {
    std::set<ProcessId> there;
    for (const ProcessReport& process : answer.report.processes) {
      there.insert(process.process);
      auto metrics = decode<ProcessMetrics>(process.bytes);
      if (metrics.ok()) metrics_.take(answer.node, process.process, *std::move(metrics));
    }
    // Those that are silent have no numbers: none is taken for ended then.
    if (answer.report.silent.empty()) metrics_.keep_only(answer.node, there);
  }
  for (std::size_t i = 0; i < infos.size(); ++i) {
    ++nodes[infos[i].alive ? 0 : 1];
    if (!infos[i].alive) metrics_.keep_only(i, {});
  }
  metrics_.end_round();
  MetricsSum sum = metrics_.sum(own_->snapshot());
  sum.add({{"troupe_nodes",
            "Nodes of the cluster.",
            MetricKind::gauge,
            {},
            {{{{"state", "alive"}}, {nodes[0]}}, {{{"state", "not_there"}}, {nodes[1]}}}},
           {"troupe_tasks",
            "Tasks that wait or run.",
            MetricKind::gauge,
            {},
            {{{}, {static_cast<double>(tasks_->counts().tasks)}}}}});
  return sum.text();
}

std::vector<ActorLoadState> ClusterInsight::loads() {
  std::vector<ActorLoadState> all = own_->loads();
  for (const auto& answer : inquiries_.ask(living_nodes(), Inquiry::loads, 0, answer_limit)) {
    for (const ProcessReport& process : answer.report.processes) {
      const auto loads = decode<std::vector<ActorLoadState>>(process.bytes);
      if (loads.ok()) all.insert(all.end(), loads->begin(), loads->end());
    }
  }
  std::ranges::sort(all, {}, &ActorLoadState::actor);
  return all;
}

ObjectsReply ClusterInsight::objects(const AskObjects& ask) {
  const std::uint32_t most = std::min(ask.objects, max_page);
  ObjectsReply reply{.page = objects_->list(ask.after, most), .silent = {}};
  auto& all = reply.page.objects;
  const auto answers = inquiries_.ask(living_nodes(), {.what = Inquiry::objects,
                                                       .limit_ms = answer_limit.count(),
                                                       .most = most,
                                                       .after_owner = ask.after.owner,
                                                       .after_number = ask.after.number});
  for (const NodeInquiries::Answer& answer : answers) {
    for (const ProcessReport& process : answer.report.processes) {
      auto page = decode<ObjectPage>(process.bytes);
      if (!page.ok()) continue;
      reply.page.all_objects += page->all_objects;
      std::ranges::move(page->objects, std::back_inserter(all));
    }
    const auto& silent = answer.report.silent;
    reply.silent.insert(reply.silent.end(), silent.begin(), silent.end());
  }
  std::ranges::sort(all, {}, &ObjectInfo::id);
  if (all.size() > most) all.resize(most);
  return reply;
}

Result<StackReply> ClusterInsight::stack(std::string_view actor) {
  TROUPE_TRY(const auto found, registry_.place_of(actor));
  StackReply reply{
      .actor = found.name, .node = "driver", .process = "driver", .pid = ::getpid(), .text = {}};
  if (found.is_local) {
    TROUPE_TRY(reply.text, process_stack(::getpid(), stack_limit));
    return reply;
  }
  const auto answers =
      inquiries_.ask({found.place.node}, Inquiry::stack, found.place.process, stack_limit);
  reply.node = agents_.infos()[found.place.node].spec.name;
  if (answers.empty()) {
    return fail(ErrorCode::timed_out, "the agent of node '{}' does not answer", reply.node);
  }
  const NodeReport& report = answers.front().report;
  if (report.processes.empty()) {
    return fail(ErrorCode::io, "the stack of actor '{}' on node '{}' cannot be read: {}",
                found.name, reply.node, report.problem);
  }
  const ProcessReport& process = report.processes.front();
  reply.process = process.name;
  reply.pid = process.pid;
  reply.text = text_of(process.bytes);
  return reply;
}

std::vector<TimelinePlace> ClusterInsight::start_timeline(milliseconds limit) {
  const auto nodes = living_nodes();
  struct Ahead {
    std::int64_t ns = 0, off_ns = std::numeric_limits<std::int64_t>::max();
  };
  std::map<std::size_t, Ahead> ahead;
  for (int round = 0; round < clock_rounds; ++round) {
    for (const auto& answer : inquiries_.ask(nodes, Inquiry::clock, 0, answer_limit)) {
      Ahead& known = ahead[answer.node];
      if (answer.off_ns < known.off_ns) known = {answer.ahead_ns, answer.off_ns};
    }
  }
  std::vector<TimelinePlace> places{{.node = "driver", .name = "driver", .pid = ::getpid()}};
  (void)answer_inquiry(*own_, *objects_,
                       {.what = Inquiry::start_timeline, .record_ms = limit.count()});
  const auto infos = agents_.infos();
  for (const auto& answer :
       inquiries_.ask(nodes, Inquiry::start_timeline, 0, answer_limit, limit)) {
    Ahead clock = ahead[answer.node];
    if (std::abs(clock.ns) <= clock.off_ns) clock = {0, 0};  // that of this machine, or as good
    for (const ProcessReport& process : answer.report.processes) {
      places.push_back({infos[answer.node].spec.name, process.process, process.name, process.pid,
                        clock.ns, clock.off_ns});
    }
  }
  return places;
}

void ClusterInsight::stop_timeline() {
  own_->timeline().stop();
  (void)inquiries_.ask(living_nodes(), Inquiry::stop_timeline, 0, answer_limit);
}

Result<Timeline> ClusterInsight::take_timeline(const std::string& node, ProcessId process) {
  if (process == 0) return own_->timeline().take();
  TROUPE_TRY(const std::size_t index, agents_.index_of(node));
  const auto answers = inquiries_.ask({index}, Inquiry::take_timeline, process, answer_limit);
  if (answers.empty() || !answers.front().report.silent.empty()) {
    return fail(ErrorCode::timed_out, "a process of node '{}' does not answer", node);
  }
  if (answers.front().report.processes.empty()) {
    return fail(ErrorCode::not_found, "a process of node '{}' has ended", node);
  }
  return decode<Timeline>(answers.front().report.processes.front().bytes);
}

}  // namespace troupe
