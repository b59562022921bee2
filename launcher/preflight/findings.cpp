#include "launcher/preflight/findings.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "runtime/base/format_bytes.hpp"

namespace troupe {
namespace {

/// Clocks that differ by more make logs and the report hard to read; nothing else depends on them.
constexpr double max_clock_seconds = 1;
/// A link is slow if it is so many times slower than the median one, and slower than any good one.
constexpr double slow_factor = 5;
constexpr double good_latency_seconds = 0.005;
constexpr double good_bytes_per_second = 1e9;

std::string megabytes_a_second(double bytes_per_second) {
  return fmt::format("{:.0f} MB/s", bytes_per_second / 1e6);
}

/// "0.12 ms", "150 ms", "12.3 s".
std::string short_time(double seconds) {
  const double ms = seconds * 1e3;
  if (ms < 9.995) return fmt::format("{:.2f} ms", ms);
  return ms < 999.5 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.1f} s", seconds);
}

/// The median of what `value` gives for all measured links; 0 if there are none.
template <class Value>
double median_of(std::span<const ProbedNode> nodes, Value value) {
  std::vector<double> values;
  for (const ProbedNode& node : nodes) {
    for (const auto& link : node.links) {
      if (link.facts.bytes_per_second > 0) values.push_back(value(link.facts));
    }
  }
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

bool is_slow(const LinkFacts& link, const LinkFacts& median) {
  if (link.bytes_per_second == 0) return false;
  return link.seconds > std::max(good_latency_seconds, slow_factor * median.seconds) ||
         link.bytes_per_second <
             std::min(good_bytes_per_second, median.bytes_per_second / slow_factor);
}

const CheckpointFile* find_file(const CheckpointFacts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts.files, name, &CheckpointFile::name);
  return found == facts.files.end() ? nullptr : &*found;
}

/// Tells the first difference between a node's copy of a checkpoint and the launcher's; empty:
/// none.
std::string difference(const CheckpointFacts& own, const CheckpointFacts& there) {
  if (!there.problem.empty()) {
    return fmt::format("there is no checkpoint in {} ({})", there.folder, there.problem);
  }
  if (there.files.empty()) return fmt::format("there is no checkpoint in {}", there.folder);
  for (const CheckpointFile& file : own.files) {
    const CheckpointFile* copy = find_file(there, file.name);
    if (copy == nullptr) return fmt::format("there is no {} in {}", file.name, there.folder);
    if (copy->bytes != file.bytes) {
      return fmt::format("{}/{} has {} bytes, but the launcher's {}", there.folder, file.name,
                         copy->bytes, file.bytes);
    }
    if (copy->mark != file.mark) {
      return fmt::format("{}/{} has another content than the launcher's", there.folder, file.name);
    }
  }
  return "";
}

std::string checkpoint_difference(const PreflightNeeds& needs, const ProbedNode& node) {
  for (std::size_t i = 0; i < needs.checkpoints.size(); ++i) {
    const std::string found = i < node.facts.checkpoints.size()
                                  ? difference(needs.checkpoints[i], node.facts.checkpoints[i])
                                  : "was not asked about all checkpoints";
    if (!found.empty()) return found;
  }
  return "";
}

bool is_staged(const PreflightNeeds& needs) { return !needs.stage_folder.empty(); }

std::uint64_t missing_bytes(const PreflightNeeds& needs, const NodeFacts& facts) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < needs.checkpoints.size(); ++i) {
    const CheckpointFacts& checkpoint = needs.checkpoints[i];
    if (place_of(checkpoint, facts, i) == CheckpointPlace::none) bytes += total_bytes(checkpoint);
  }
  return bytes;
}

/// What is told of a node's checkpoints in the table.
std::string checkpoint_cell(const PreflightNeeds& needs, const ProbedNode& node) {
  if (needs.checkpoints.empty()) return "-";
  if (is_staged(needs)) return missing_bytes(needs, node.facts) > 0 ? "copy" : "same";
  return checkpoint_difference(needs, node).empty() ? "same" : "no";
}

/// Collects the findings about one node.
class Judge {
 public:
  Judge(const PreflightNeeds& needs, const ProbedNode& node, std::vector<Finding>& findings)
      : needs_(needs), node_(node), findings_(findings) {}

  void refuse(std::string what, std::string remedy) {
    findings_.push_back({node_.name, true, std::move(what), std::move(remedy)});
  }
  void warn(std::string what, std::string remedy) {
    findings_.push_back({node_.name, false, std::move(what), std::move(remedy)});
  }

  /// `first` is the first node.
  void judge_stage(const ProbedNode& first) {
    const auto& staged = node_.facts.staged;
    for (std::size_t i = 0; i < std::min(staged.size(), needs_.checkpoints.size()); ++i) {
      if (i < first.facts.staged.size() && staged[i].folder != first.facts.staged[i].folder) {
        return refuse(fmt::format("its cache is {}, that of {} is {}", staged[i].folder, first.name,
                                  first.facts.staged[i].folder),
                      "set model.stage_folder to a path that is the same everywhere");
      }
      if (!staged[i].distrust.empty()) {
        return refuse(fmt::format("the copy in {} is not to be trusted: {}", staged[i].folder,
                                  staged[i].distrust),
                      "remove it, or set model.stage_folder to a folder that is your own");
      }
      if (!staged[i].files.empty() && !difference(needs_.checkpoints[i], staged[i]).empty()) {
        return refuse(fmt::format("the copy in {} is damaged", staged[i].folder), "remove it");
      }
    }
    const std::uint64_t bytes = missing_bytes(needs_, node_.facts);
    if (bytes <= node_.facts.stage_disk_bytes) return;
    refuse(fmt::format("{} are free in {}, but the copy of the checkpoint takes {}",
                       format_bytes(node_.facts.stage_disk_bytes), needs_.stage_folder,
                       format_bytes(bytes)),
           "free space there, or set model.stage_folder to a folder on another disk");
  }

  void judge_checkpoint() {
    if (auto found = checkpoint_difference(needs_, node_); !found.empty()) {
      refuse(std::move(found),
             "copy the launcher's there, set model.stage: copy, or use a shared file system");
    }
  }

  void judge_machine(const NodeNeeds& needs) {
    const NodeFacts& facts = node_.facts;
    if (facts.gpus < needs.gpus) {
      refuse(
          fmt::format("it has {} GPU{} that this build runs on, but {} workers are to run there{}",
                      facts.gpus, facts.gpus == 1 ? "" : "s", needs.gpus,
                      facts.gpu_problem.empty() ? "" : " (" + facts.gpu_problem + ")"),
          "lower cluster.devices_per_node, or take other hosts");
    }
    if (facts.memory_bytes > 0 && needs.weight_bytes > facts.memory_bytes) {
      warn(fmt::format("its workers' weights are {}, but {} of memory are free",
                       format_bytes(needs.weight_bytes), format_bytes(facts.memory_bytes)),
           "lower cluster.devices_per_node, or split the model over more hosts");
    }
    if (facts.open_files < needs_.open_files) {
      refuse(fmt::format("a process may have {} open files, but needs up to {}", facts.open_files,
                         needs_.open_files),
             fmt::format("raise the hard limit there (ulimit -Hn {})", needs_.open_files));
    }
  }

  void judge_clock() {
    const double off = std::abs(node_.clock_ahead) - node_.clock_error;
    if (off <= max_clock_seconds) return;
    warn(fmt::format("its clock is {} {} the launcher's, and times in logs with it",
                     short_time(std::abs(node_.clock_ahead)),
                     node_.clock_ahead > 0 ? "ahead of" : "behind"),
         "keep the clocks by NTP");
  }

  void judge_reach() {
    std::string unreached;
    const LinkFacts* first = nullptr;
    int count = 0;
    for (const auto& link : node_.links) {
      if (link.facts.problem.empty()) continue;
      if (first == nullptr) first = &link.facts;
      if (++count <= 3) unreached += (count > 1 ? ", " : "") + link.to;
    }
    if (first == nullptr) return;
    if (count > 3) unreached += fmt::format(" and {} more", count - 3);
    refuse(fmt::format("it does not reach {} ({})", unreached, first->problem),
           "open TCP between the hosts on cluster.ports, or set cluster.network to the interface "
           "that connects them");
  }

  /// Of a pair whose links are slow both ways the first node tells: one slow way may be a process
  /// that had to wait for a core.
  void judge_speed(std::span<const ProbedNode> nodes, const LinkFacts& median) {
    const ProbedNode::Link* slowest = nullptr;
    for (const auto& link : node_.links) {
      if (!is_slow(link.facts, median)) continue;
      const auto peer = std::ranges::find(nodes, link.to, &ProbedNode::name);
      if (peer == nodes.end()) continue;
      const auto back = std::ranges::find(peer->links, node_.name, &ProbedNode::Link::to);
      const bool goes_back = back != peer->links.end();
      if (goes_back && (&*peer < &node_ || !is_slow(back->facts, median))) continue;
      if (slowest == nullptr || link.facts.bytes_per_second < slowest->facts.bytes_per_second) {
        slowest = &link;
      }
    }
    if (slowest == nullptr) return;
    warn(fmt::format("its link to {} takes {} and carries {}, the median one {} and {}",
                     slowest->to, short_time(slowest->facts.seconds),
                     megabytes_a_second(slowest->facts.bytes_per_second),
                     short_time(median.seconds), megabytes_a_second(median.bytes_per_second)),
         "look for a cable, a duplex setting or other traffic");
  }

 private:
  const PreflightNeeds& needs_;
  const ProbedNode& node_;
  std::vector<Finding>& findings_;
};

/// Warns of the nodes whose GPU driver is not that of most.
void judge_drivers(std::span<const ProbedNode> nodes, std::vector<Finding>& findings) {
  std::map<std::string, int> counts;
  for (const ProbedNode& node : nodes) {
    if (!node.facts.gpu_driver.empty()) ++counts[node.facts.gpu_driver];
  }
  if (counts.size() < 2) return;
  const auto usual = std::ranges::max_element(
      counts, [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const ProbedNode& node : nodes) {
    const std::string& driver = node.facts.gpu_driver;
    if (driver.empty() || driver == usual->first) continue;
    findings.push_back(
        {node.name, false,
         fmt::format("its GPU driver is {}, that of most nodes {}", driver, usual->first),
         "install the same everywhere"});
  }
}

/// Warns that GPUs stay unused because cluster.device was left out; names the first such node.
void judge_unused_gpus(const PreflightNeeds& needs, std::span<const ProbedNode> nodes,
                       std::vector<Finding>& findings) {
  const auto first =
      std::ranges::find_if(nodes, [](const ProbedNode& node) { return node.facts.gpus > 0; });
  if (!needs.leaves_gpus || first == nodes.end()) return;
  const int gpus = first->facts.gpus;
  findings.push_back({first->name, false,
                      fmt::format("its {} GPU{} not used: on other hosts cluster.device: auto "
                                  "means their CPUs",
                                  gpus, gpus == 1 ? " is" : "s are"),
                      "set cluster.device to cuda, or to cpu"});
}

/// The cells of a node's slowest links.
struct SlowestLinks {
  double seconds = 0;
  double bytes_per_second = 0;
};

SlowestLinks slowest_links(const ProbedNode& node) {
  SlowestLinks slowest;
  for (const auto& link : node.links) {
    const LinkFacts& facts = link.facts;
    if (facts.bytes_per_second == 0) continue;
    slowest.seconds = std::max(slowest.seconds, facts.seconds);
    if (slowest.bytes_per_second == 0 || facts.bytes_per_second < slowest.bytes_per_second) {
      slowest.bytes_per_second = facts.bytes_per_second;
    }
  }
  return slowest;
}

std::string clock_text(const ProbedNode& node) {
  return fmt::format("{}{}", node.clock_ahead < 0 ? '-' : '+',
                     short_time(std::abs(node.clock_ahead)));
}

}  // namespace

CheckpointPlace place_of(const CheckpointFacts& own, const NodeFacts& facts, std::size_t index) {
  const auto is_equal = [&](const std::vector<CheckpointFacts>& copies) {
    return index < copies.size() && difference(own, copies[index]).empty();
  };
  if (is_equal(facts.staged)) return CheckpointPlace::staged;
  return is_equal(facts.checkpoints) ? CheckpointPlace::own : CheckpointPlace::none;
}

std::vector<Finding> judge_nodes(const PreflightNeeds& needs, std::span<const ProbedNode> nodes) {
  const LinkFacts median{
      "", median_of(nodes, [](const LinkFacts& link) { return link.seconds; }),
      median_of(nodes, [](const LinkFacts& link) { return link.bytes_per_second; })};
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Judge judge(needs, nodes[i], findings);
    if (!nodes[i].problem.empty()) {
      judge.refuse(nodes[i].problem, "see its log, and try again or take it out of the hosts");
      continue;
    }
    if (is_staged(needs)) judge.judge_stage(nodes.front());
    if (!is_staged(needs)) judge.judge_checkpoint();
    judge.judge_machine(i < needs.nodes.size() ? needs.nodes[i] : NodeNeeds{});
    judge.judge_reach();
    judge.judge_clock();
    judge.judge_speed(nodes, median);
  }
  judge_drivers(nodes, findings);
  judge_unused_gpus(needs, nodes, findings);
  return findings;
}

std::string describe(const Finding& finding) {
  return fmt::format("{}: {}: {}", finding.node, finding.what, finding.remedy);
}

std::string preflight_table(const PreflightNeeds& needs, std::span<const ProbedNode> nodes) {
  constexpr const char* row = "{:<{}} {:>5} {:<6} {:>4} {:>8} {:>8} {:>8} {:>7} {:>6}  {}\n";
  std::size_t width = 12;
  for (const ProbedNode& node : nodes) width = std::max(width, node.name.size());
  std::string text = fmt::format(fmt::runtime(row), "node", width, "cores", "CPU", "GPUs", "memory",
                                 "disk", "clock", "latency", "MB/s", "model");
  for (const ProbedNode& node : nodes) {
    if (!node.problem.empty()) {
      text += fmt::format("{:<{}} not looked at\n", node.name, width);
      continue;
    }
    const NodeFacts& facts = node.facts;
    const SlowestLinks slowest = slowest_links(node);
    const bool is_measured = slowest.bytes_per_second > 0;
    text += fmt::format(fmt::runtime(row), node.name, width, facts.cores, facts.cpu, facts.gpus,
                        format_bytes(facts.memory_bytes), format_bytes(facts.disk_bytes),
                        clock_text(node), is_measured ? short_time(slowest.seconds) : "-",
                        is_measured ? fmt::format("{:.0f}", slowest.bytes_per_second / 1e6) : "-",
                        checkpoint_cell(needs, node));
  }
  return text;
}

}  // namespace troupe
