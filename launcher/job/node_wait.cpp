#include "launcher/job/node_wait.hpp"

#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "launcher/config/host_port.hpp"
#include "runtime/base/format_bytes.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/process/shell_word.hpp"

namespace troupe {
namespace {

/// The names of so many nodes fit on a line.
constexpr std::size_t named_nodes = 8;

}  // namespace

NodeWait::NodeWait(const Config& config, std::function<void(const std::string&)> tell)
    : config_(config.cluster), tell_(std::move(tell)) {}

std::string NodeWait::update(const ClusterWait& state) {
  if (const ProgramCopies& copies = state.copies; copies.hosts > 0) {
    const std::string what =
        fmt::format("copying the program to {} host{}", copies.hosts, copies.hosts == 1 ? "" : "s");
    if (!std::exchange(has_told_copies_, true)) tell_(what);
    return fmt::format("{}: {} of {}", what, format_bytes(copies.sent), format_bytes(copies.total));
  }
  if (config_.launch != "join") return "";
  auto listen = HostPort::parse(config_.listen);
  if (join_command_.empty() && listen.ok()) {
    // The name of an interface means nothing to other machines.
    if (auto address = interface_address(listen->host); address.ok()) listen->host = *address;
    listen->port = state.port;
    join_command_ =
        fmt::format("launcher agent --join {} --token-file {}", shell_word(listen->text()),
                    shell_word(std::filesystem::absolute(config_.token_file).string()));
    tell_(fmt::format("waiting for {} node{}, which {} to run:\n  {}", state.expected,
                      state.expected == 1 ? "" : "s", state.expected == 1 ? "is" : "are each",
                      join_command_));
  }
  for (; told_refused_ < state.refused.size(); ++told_refused_) {
    tell_(fmt::format("refused {}", state.refused[told_refused_]));
  }
  const std::string text =
      fmt::format("{} of {} nodes have joined", state.came.size(), state.expected);
  if (std::exchange(told_, state.came.size()) != state.came.size()) {
    const bool are_few = state.came.size() <= named_nodes;
    tell_(are_few ? fmt::format("{}: {}", text, fmt::join(state.came, ", ")) : text);
  }
  return text;
}

}  // namespace troupe
