#include "launcher/preflight/node_look.hpp"

#include <memory>
#include <utility>

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// For the probes' process to start, and again for the facts.
constexpr milliseconds answer_limit{20000};
constexpr int clock_readings = 4;

double since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

SpawnOptions on_node(const std::string& name) {
  return {.node = name, .process = "preflight-" + name};
}

}  // namespace

/// Reads a node's clock several times, one after the other. Of the readings the one with the
/// shortest way there and back is the most exact.
struct NodeLook::ClockReader : std::enable_shared_from_this<ClockReader> {
  ActorHandle<ProbeTarget> target;
  Promise<ClockReading> read;
  ClockReading best;
  int readings = 0;

  void begin() {
    const double before = since_1970();
    target.call<&ProbeTarget::clock_ns>().then(
        [self = shared_from_this(), before](const Result<std::int64_t>& there) {
          self->take(before, there);
        });
  }
  void take(double before, const Result<std::int64_t>& there) {
    const double after = since_1970();
    if (!there.ok()) return read.complete(there.error());
    const double error = (after - before) / 2;
    if (readings == 0 || error < best.error) {
      best = {static_cast<double>(*there) / 1e9 - (before + after) / 2, error};
    }
    if (++readings == clock_readings) return read.complete(best);
    begin();
  }
};

NodeLook::NodeLook(Cluster& cluster, const std::string& name, const std::string& address)
    : target_made_(cluster.spawn<ProbeTarget>(on_node(name))),
      probe_made_(cluster.spawn<NodeProbe>(on_node(name))),
      deadline_(answer_limit) {
  node_.name = name;
  node_.address = address;
}

bool NodeLook::go_on(const FactsRequest& request, milliseconds wait) {
  if (!is_done_) is_done_ = facts_ ? take_answers(wait) : begin_to_ask(request, wait);
  return is_done_;
}

bool NodeLook::begin_to_ask(const FactsRequest& request, milliseconds wait) {
  if (!target_made_.wait(wait) || !probe_made_.wait(wait)) return is_late();
  const auto target = target_made_.get(milliseconds(0));
  const auto probe = probe_made_.get(milliseconds(0));
  if (target.ok()) target_ = *target;
  if (probe.ok()) probe_ = *probe;
  if (!target.ok()) return give_up(target.error());
  if (!probe.ok()) return give_up(probe.error());
  facts_ = probe_.call<&NodeProbe::facts>(request);
  const auto reader = std::make_shared<ClockReader>();
  reader->target = target_;
  clock_ = reader->read.future();
  reader->begin();
  deadline_ = Deadline(answer_limit);
  return false;
}

bool NodeLook::take_answers(milliseconds wait) {
  if (!facts_->wait(wait) || !clock_->wait(wait)) return is_late();
  auto facts = facts_->get(milliseconds(0));
  const auto clock = clock_->get(milliseconds(0));
  if (!facts.ok()) return give_up(facts.error());
  if (!clock.ok()) return give_up(clock.error());
  node_.facts = *std::move(facts);
  node_.clock_ahead = clock->ahead;
  node_.clock_error = clock->error;
  return true;
}

bool NodeLook::is_late() {
  if (!deadline_.is_over()) return false;
  return give_up(fail(ErrorCode::timed_out, "no answer within {} ms", answer_limit.count()));
}

bool NodeLook::give_up(const Error& why) {
  node_.problem = "it could not be looked at (" + why.message + ")";
  return true;
}

void NodeLook::leave() const {
  if (probe_) probe_.call<&NodeProbe::leave>();
  if (target_) target_.call<&ProbeTarget::leave>();
}

}  // namespace troupe
