#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/api/losses.hpp"
#include "actors/driver/call_until_taken.hpp"
#include "actors/driver/driver.hpp"
#include "actors/executor/request_preprocessor.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

// How an elastic engine drops a step domain and takes one back.

void Driver::count_serving() {
  std::int32_t there = 0;
  std::int32_t serving = 0;
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (!domains_[i]) continue;
    if (there++ == 0) first_there_ = static_cast<std::int32_t>(i);
    if (!recoveries_[i]->is_running()) ++serving;
  }
  there_ = there;
  serving_ = serving;
}

bool Driver::others_serve(std::int32_t domain) const {
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (std::cmp_not_equal(i, domain) && domains_[i] && !recoveries_[i]->is_running()) return true;
  }
  return false;
}

void Driver::drop_or_give_up(std::int32_t domain, const std::string& why, bool has_ended) {
  const auto index = static_cast<std::size_t>(domain);
  Recovery& recovery = *recoveries_[index];
  // One that has ended, or whose search has ended early, cannot go on even if all others have been
  // lost since.
  const bool must_drop = has_ended || domains_[index]->gave_up_early();
  if (!spec_.elastic || (!must_drop && !others_serve(domain))) {
    return give_up(recovery.losses(), why);
  }
  end(domain, why.empty() ? cause_of(recovery.losses()).message : why);
}

void Driver::end(std::int32_t domain, const std::string& why) {
  const auto index = static_cast<std::size_t>(domain);
  domains_[index]->end();
  if (!recoveries_[index]->is_running()) return drop(domain, why);
  end_because_[index] = why;  // its attempt ends now
}

void Driver::close_replicas(std::int32_t domain) {
  const int each = mesh_.replicas_per_domain();
  for (int i = 0; i < each; ++i) router_->close(domain * each + i);
}

void Driver::drop(std::int32_t domain, const std::string& why) {
  const auto index = static_cast<std::size_t>(domain);
  std::unique_ptr<Domain> gone = std::move(domains_[index]);
  std::vector<ActorDown> losses = recoveries_[index]->losses();
  recoveries_[index].reset();
  end_because_[index].reset();
  count_serving();
  returned_.erase(domain);
  gone->end();
  close_replicas(domain);
  EngineStats stats = gone->stats();
  stats.running = stats.waiting = 0;
  stats.kv_use = 0;
  past_stats_.add(stats);

  std::vector<RequestLedger::Unanswered> requests = gone->release_requests();
  for (const auto& request : requests) router_->finished(request.request.id);
  EngineDomainChange change{.kind = EngineDomainChange::Kind::dropped,
                            .domain = domain,
                            .nodes = gone->nodes(),
                            .why = why,
                            .requests = requests.size(),
                            .serving = there_,
                            .all = static_cast<std::int32_t>(domains_.size()),
                            .actors = gone->actors(),
                            .unsaved_tokens = gone->take_unsaved()};
  log::warning("step domain {} is dropped; its {} requests go to the other {}{}{}", domain,
               change.requests, change.serving, why.empty() ? "" : ": ", why);
  begin_search(domain, change.nodes, std::move(losses));
  if (events_.on_domain) events_.on_domain(change);
  distribute(std::move(requests));
}

void Driver::begin_search(std::int32_t domain, std::vector<std::string> nodes,
                          std::vector<ActorDown> losses) {
  auto search = make_search(domain, nodes);
  const auto [of, is_new] =
      dropped_.insert_or_assign(domain, Dropped{std::chrono::steady_clock::now(), std::move(nodes),
                                                std::move(losses), std::move(search)});
  of->second.search->begin();
}

void Driver::grow() {
  std::int32_t first = -1;
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (domains_[i]) continue;
    const auto domain = static_cast<std::int32_t>(i);
    close_replicas(domain);
    if (first < 0) first = domain;
    begin_search(domain, {}, {});
  }
  if (first < 0) return;
  log::info("step domains {} to {} have no nodes yet", first, domains_.size() - 1);
  if (!events_.on_domain) return;
  events_.on_domain({.kind = EngineDomainChange::Kind::awaited,
                     .domain = first,
                     .nodes = {},
                     .why = {},
                     .serving = there_,
                     .all = static_cast<std::int32_t>(domains_.size())});
}

std::unique_ptr<DomainReturn> Driver::make_search(std::int32_t domain,
                                                  std::vector<std::string> nodes) {
  const auto self = context_.self<Driver>();
  DomainReturn::Options options;
  options.domain = domain;
  options.places = places_of(domain);
  options.info = info_;
  options.lost_nodes = std::move(nodes);
  options.alone_limit = std::chrono::seconds(spec_.restart.wait_seconds);
  options.make = [this, domain, groups = groups_](PlacementGroup group) {
    auto placed = groups;
    placed.at(static_cast<std::size_t>(domain)) = std::move(group);
    return make_domain(domain, std::move(placed));
  };
  options.has_others = [this] { return there_ > 0; };
  options.on_down = watcher(domain);
  options.on_ready = [self, on_failed = on_failed_, domain] {
    call_until_taken<&Driver::domain_is_back>(self, on_failed, domain);
  };
  options.on_hopeless = [self, on_failed = on_failed_, domain](const std::string& why) {
    call_until_taken<&Driver::search_ended>(self, on_failed, domain, why);
  };
  options.on_wait = events_.on_wait;
  return std::make_unique<DomainReturn>(*cluster_, std::move(options));
}

void Driver::search_ended(std::int32_t domain, const std::string& why) {
  const auto found = dropped_.find(domain);
  if (is_given_up_ || found == dropped_.end()) return;
  if (there_ == 0) {
    std::vector<ActorDown> losses;
    for (auto& [of, dropped] : dropped_) {
      losses.insert(losses.end(), dropped.losses.begin(), dropped.losses.end());
    }
    return give_up(std::move(losses), why);
  }
  // Another one is back since.
  found->second.search = make_search(domain, found->second.nodes);
  found->second.search->begin();
}

void Driver::domain_is_back(std::int32_t domain) {
  const auto index = static_cast<std::size_t>(domain);
  const auto found = dropped_.find(domain);
  if (is_given_up_ || found == dropped_.end()) return;
  std::unique_ptr<Domain> back = found->second.search->take();
  if (!back) return found->second.search->begin();
  const std::chrono::duration<double> away = std::chrono::steady_clock::now() - found->second.since;
  const auto since = found->second.since;
  const bool is_new = found->second.nodes.empty();
  dropped_.erase(found);
  domains_[index] = std::move(back);
  groups_[index] = domains_[index]->placed();
  recoveries_[index] = make_recovery(domain);
  returned_[domain] = returned(domain, since);
  count_serving();
  for (int i = 0; i < mesh_.replicas_per_domain(); ++i) {
    router_->open(domain * mesh_.replicas_per_domain() + i);
  }
  if (is_draining_) domains_[index]->drain();
  const EngineDomainChange change{.kind = EngineDomainChange::Kind::back,
                                  .domain = domain,
                                  .nodes = domains_[index]->nodes(),
                                  .why = {},
                                  .serving = there_,
                                  .all = static_cast<std::int32_t>(domains_.size()),
                                  .is_new = is_new,
                                  .seconds = away.count()};
  log::info("step domain {} serves again after {:.2f} s", domain, change.seconds);
  if (events_.on_domain) events_.on_domain(change);
  distribute(std::exchange(homeless_, {}));
}

Driver::Returned Driver::returned(std::int32_t domain,
                                  std::chrono::steady_clock::time_point since) const {
  const auto names = domains_[static_cast<std::size_t>(domain)]->nodes();
  Returned newest{since, names.front()};
  std::chrono::steady_clock::time_point came_at{};
  for (const Cluster::NodeInfo& node : cluster_->nodes()) {
    if (std::ranges::find(names, node.spec.name) == names.end() || node.came_at < came_at) continue;
    came_at = node.came_at;
    newest = {std::max(since, came_at), node.spec.name};
  }
  return newest;
}

void Driver::note_first_answer(const EngineReport& report) {
  const auto found = returned_.find(report.domain);
  if (report.completions.empty() || found == returned_.end()) return;
  const Returned since = std::move(found->second);
  returned_.erase(found);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since.could_be;
  log::info("step domain {} has answered a request {:.2f} s after it could have the node '{}'",
            report.domain, took.count(), since.node);
  if (!events_.on_domain) return;
  events_.on_domain({.kind = EngineDomainChange::Kind::answered,
                     .domain = report.domain,
                     .nodes = {since.node},
                     .why = {},
                     .serving = there_,
                     .all = static_cast<std::int32_t>(domains_.size()),
                     .seconds = took.count()});
}

void Driver::distribute(std::vector<RequestLedger::Unanswered> requests) {
  EngineReport refusals;
  for (RequestLedger::Unanswered& request : requests) {
    const std::uint64_t id = request.request.id;
    if (request.is_given_up()) {  // its domain was dropped before it had been answered
      refusals.completions.push_back(
          troupe::refuse(id, "process_crashed",
                         fmt::format("{} times a process crashed while it computed this request",
                                     RequestLedger::max_crashes)));
    } else if (!router_->has_open()) {
      homeless_.push_back(std::move(request));
    } else {
      const auto [domain, replica] = place_of(router_->choose(request.request));
      domains_[domain]->adopt(replica, std::move(request));
    }
  }
  for (const auto& domain : domains_) {
    if (domain) domain->give_due();
  }
  if (!refusals.completions.empty()) publish(std::move(refusals));
}

Result<void> Driver::check_is_alive(const std::string& node) const {
  std::string names;
  for (const Cluster::NodeInfo& info : cluster_->nodes()) {
    if (info.spec.name == node && info.alive) return {};
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", info.spec.name);
    if (info.spec.name == node) {
      return fail(ErrorCode::peer_died, "node '{}' is not there: {}", node,
                  info.was_drained            ? "it was drained"
                  : info.lost_because.empty() ? "it has not come yet"
                                              : "its agent " + info.lost_because);
    }
  }
  return fail(ErrorCode::not_found, "no node is named '{}'; there is {}", node, names);
}

Result<std::string> Driver::drain_node(const std::string& node) {
  if (!*serves_) return fail(ErrorCode::unsupported, "the model is not loaded yet");
  TROUPE_CHECK(check_is_alive(node));
  std::vector<std::int32_t> here;
  bool others_serve = false;
  const auto groups = cluster_->placement_groups();
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (!domains_[i]) continue;
    const auto group = std::ranges::find(groups, domains_[i]->placed().id, &PlacementGroup::id);
    const bool is_here =
        group != groups.end() && std::ranges::any_of(group->bundles, [&](const auto& bundle) {
          return bundle.node == node && !bundle.is_lost;
        });
    if (is_here) here.push_back(static_cast<std::int32_t>(i));
    others_serve |= !is_here && !recoveries_[i]->is_running();
  }
  if (!here.empty() && !spec_.elastic) {
    return fail(ErrorCode::unsupported,
                "node '{}' has ranks of the model, and the job cannot go on without them: that "
                "takes cluster.elastic: true",
                node);
  }
  if (!here.empty() && !others_serve) {
    return fail(ErrorCode::resource_exhausted,
                "no other step domain serves at the moment, so node '{}' stays; end the job with "
                "`launcher stop`, or wait until another one is back",
                node);
  }
  TROUPE_CHECK(cluster_->close_node(node));
  for (const std::int32_t domain : here) end(domain, fmt::format("node '{}' is drained", node));
  TROUPE_CHECK(cluster_->dismiss_node(node));
  std::string told = fmt::format("node '{}' is drained", node);
  for (const std::int32_t domain : here) told += fmt::format("; step domain {} is dropped", domain);
  return told + fmt::format("; {} of {} step domains serve", there_.load(), domains_.size());
}

}  // namespace troupe
