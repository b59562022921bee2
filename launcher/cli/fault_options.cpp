#include "launcher/cli/fault_options.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "launcher/cli/comma_separated.hpp"
#include "launcher/cli/number_checks.hpp"

namespace troupe {
namespace {

using Kind = FaultKind;

constexpr std::array all_kinds = {Kind::worker, Kind::executor, Kind::stop,   Kind::hang,
                                  Kind::agent,  Kind::node,     Kind::freeze, Kind::link};

/// "worker,stop".
Result<std::vector<Kind>> kinds(std::string_view text) {
  std::vector<Kind> found;
  for (const std::string_view word : comma_separated(text)) {
    const auto kind =
        std::ranges::find_if(all_kinds, [&](Kind one) { return to_string(one) == word; });
    if (kind == all_kinds.end() || std::ranges::find(found, *kind) != found.end()) {
      std::vector<std::string_view> known;
      for (const Kind one : all_kinds) known.push_back(to_string(one));
      return fail(ErrorCode::invalid_argument, "--kinds: expected some of {}, each once, found {}",
                  fmt::join(known, ","), text);
    }
    found.push_back(*kind);
  }
  return found;
}

}  // namespace

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case Kind::worker:
      return "worker";
    case Kind::executor:
      return "executor";
    case Kind::stop:
      return "stop";
    case Kind::hang:
      return "hang";
    case Kind::agent:
      return "agent";
    case Kind::node:
      return "node";
    case Kind::freeze:
      return "freeze";
    case Kind::link:
      return "link";
  }
  return "unknown";
}

bool takes_node(FaultKind kind) {
  return kind == Kind::agent || kind == Kind::node || kind == Kind::freeze || kind == Kind::link;
}

void FaultArguments::declare(CLI::App& app) {
  app.add_option("--kinds", kinds_,
                 "faults, with commas between; by default all but hang and link that the "
                 "nodes of the job recover from by themselves")
      ->type_name("LIST")
      ->expected(1);
  app.add_option("--count", options_.count, "how many faults, each kind as often as the others")
      ->type_name("N")
      ->expected(1)
      ->check(integer_between(1, 100000))
      ->capture_default_str();
  app.add_option("--interval", options_.interval_seconds,
                 "mean time from the first step after a fault to the next fault; times are random")
      ->type_name("SECONDS")
      ->expected(1)
      ->check(number_between(0, 86400))
      ->capture_default_str();
  app.add_option("--outage", options_.outage_seconds,
                 "how long a frozen node is stopped, and a link is down")
      ->type_name("SECONDS")
      ->expected(1)
      ->check(number_between(2.5, 3600))
      ->capture_default_str();
  app.add_option("--link-device", options_.link_device,
                 "the network device of the nodes that link takes down, e.g. eth0")
      ->type_name("NAME")
      ->expected(1);
  app.add_flag("--alter-request", options_.alters_request,
               "changes one request after the undisturbed run, to see the comparison fail");
}

Result<FaultOptions> FaultArguments::judge() const {
  FaultOptions options = options_;
  if (!kinds_.empty()) {
    TROUPE_TRY(options.kinds, kinds(kinds_));
  }
  const bool has_link = std::ranges::find(options.kinds, Kind::link) != options.kinds.end();
  if (has_link && options.link_device.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--kinds link: name the nodes' network device with --link-device");
  }
  if (!has_link && !options.link_device.empty()) {
    return fail(ErrorCode::invalid_argument, "--link-device has no effect without --kinds link");
  }
  return options;
}

}  // namespace troupe
