#include "launcher/job/cluster_nodes.hpp"

#include <charconv>
#include <chrono>
#include <filesystem>
#include <set>

#include "launcher/config/host_port.hpp"
#include "runtime/base/answer_within.hpp"
#include "runtime/base/log.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/join_token.hpp"
#include "runtime/node/node_name.hpp"
#include "runtime/node/slurm_node_starter.hpp"

namespace troupe {
namespace {

/// For the address of a login node, without which the job runs as well.
constexpr std::chrono::seconds lookup_limit{3};

/// A node's name: the host's, with a number behind it for a host that is named again.
std::string name_of(const std::string& host, std::set<std::string>& taken) {
  return free_node_name(node_name_of(host),
                        [&](const std::string& name) { return !taken.insert(name).second; });
}

/// The address of this machine that the hosts reach: of `auto` the one towards the first host that
/// is not this machine itself.
Result<std::string> address_for(const Config& config, const std::vector<std::string>& hosts) {
  const bool is_auto = config.cluster.network == "auto";
  Result<std::string> address = fail(ErrorCode::invalid_argument, "there are no hosts");
  if (!is_auto) address = interface_address(config.cluster.network);
  for (std::size_t i = 0; is_auto && i < hosts.size(); ++i) {
    address = local_address_towards(hosts[i]);
    if (!address.ok() || !is_loopback(*address)) break;
  }
  if (address.ok()) return address;
  return fail(
      address.error().code, "cluster.network: {}{}", address.error().message,
      is_auto ? ": set it to the interface or address of this machine that the hosts reach" : "");
}

/// The address at which a login node reaches this machine, for a Slurm job on this machine alone,
/// so that `troupe` can be used there; empty if there is none.
std::string address_for_login_host(const Config& config) {
  const auto host = slurm_login_host();
  if (!host.ok()) return "";
  const auto ask = [name = *host] { return local_address_towards(name); };
  const auto address = config.cluster.network == "auto"
                           ? answer_within<std::string>(
                                 lookup_limit, ask, "the name server does not answer for " + *host)
                           : interface_address(config.cluster.network);
  if (!address.ok()) log::info("`troupe` cannot be used on {}: {}", *host, address.error().message);
  return address.ok() && !is_loopback(*address) ? *address : "";
}

Error about(std::string_view key, Error error) {
  error.message = fmt::format("{}: {}", key, error.message);
  return error;
}

/// The keys of nodes that join are given for these, and for no others.
Result<void> check_join_keys(const Config::Cluster& cluster) {
  const bool joins = cluster.launch == "join";
  const std::pair<const char*, bool> given[] = {
      {"cluster.listen", !cluster.listen.empty()},
      {"cluster.nodes", cluster.nodes.has_value()},
      {"cluster.token_file", !cluster.token_file.empty()}};
  for (const auto& [key, is_given] : given) {
    if (is_given == joins) continue;
    return fail(ErrorCode::invalid_argument, "{}: {}", key,
                joins ? "nodes that join (cluster.launch: join) need it"
                      : "this is for nodes that join: set cluster.launch: join");
  }
  return {};
}

/// There must be nodes beside the spares. `hosts`: of all nodes.
Result<void> check_spares(const Config::Cluster& cluster, std::size_t hosts) {
  if (cluster.spares == 0) return {};
  if (cluster.launch == "local") {
    return fail(ErrorCode::invalid_argument,
                "cluster.spares: a job on this machine alone has one node, and no spares");
  }
  if (std::cmp_less(cluster.spares, hosts)) return {};
  return fail(ErrorCode::invalid_argument,
              "cluster.spares: {} of {} node{} leave none for workers: name more nodes",
              cluster.spares, hosts, hosts == 1 ? "" : "s");
}

Result<void> let_nodes_join(const Config::Cluster& cluster, ClusterOptions& options) {
  auto listen = HostPort::parse(cluster.listen);
  if (!listen.ok()) return about("cluster.listen", std::move(listen).error());
  auto address = own_address(listen->host);
  if (!address.ok()) return about("cluster.listen", std::move(address).error());
  if (std::error_code error; std::filesystem::exists(cluster.token_file, error)) {
    if (auto token = read_join_token(cluster.token_file); !token.ok()) {
      return about("cluster.token_file", std::move(token).error());
    }
  }
  options.address = *std::move(address);
  options.join.emplace().port = listen->port;
  options.start_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(cluster.join_timeout * 1000));
  return {};
}

Result<PortRange> ports_of(const std::string& text) {
  if (text == "auto") return PortRange{};
  PortRange ports;
  const auto [dash, error] = std::from_chars(text.data(), text.data() + text.size(), ports.first);
  const char* end = text.data() + text.size();
  const bool has_dash = error == std::errc() && dash != end && *dash == '-';
  const auto last =
      has_dash ? std::from_chars(dash + 1, end, ports.last) : std::from_chars_result{};
  if (has_dash && last.ec == std::errc() && last.ptr == end && ports.first > 0 &&
      ports.first <= ports.last) {
    return ports;
  }
  return fail(ErrorCode::invalid_argument,
              "cluster.ports: '{}' is no range of ports: write FIRST-LAST, say 7000-7099, or auto",
              text);
}

Result<std::vector<std::string>> all_hosts_of(const Config& config) {
  const std::string& launch = config.cluster.launch;
  if (launch == "join") {
    std::vector<std::string> nodes;
    for (std::int64_t i = 1; i <= *config.cluster.nodes; ++i) {
      nodes.push_back(fmt::format("node{}", i));
    }
    return nodes;
  }
  if (launch != "slurm") return config.cluster.hosts;
  auto nodes = slurm_nodes();
  if (nodes.ok()) return nodes;
  return fail(nodes.error().code, "cluster.launch: {}", nodes.error().message);
}

}  // namespace

Result<HostEntry> parse_host(const std::string& text) {
  HostEntry entry{{text, 0}, ""};
  std::string& destination = entry.ssh.destination;
  const auto colon = text.rfind(':');
  // Several colons without brackets are those of an IPv6 address.
  const bool has_port =
      colon != std::string::npos && (text.find(':') == colon || text[colon - 1] == ']');
  if (has_port) {
    const std::string_view port = std::string_view(text).substr(colon + 1);
    const auto [end, error] =
        std::from_chars(port.data(), port.data() + port.size(), entry.ssh.port);
    if (error != std::errc() || end != port.data() + port.size() || entry.ssh.port == 0) {
      return fail(ErrorCode::invalid_argument, "'{}' has no port behind the colon", text);
    }
    destination.resize(colon);
  }
  const auto at = destination.rfind('@');
  entry.name = destination.substr(at == std::string::npos ? 0 : at + 1);
  if (entry.name.starts_with('[') && entry.name.ends_with(']')) {
    entry.name = entry.name.substr(1, entry.name.size() - 2);
    destination = destination.substr(0, at == std::string::npos ? 0 : at + 1) + entry.name;
  }
  if (entry.name.empty() || destination.starts_with('-')) {
    return fail(ErrorCode::invalid_argument,
                "'{}' is no host; write HOST, USER@HOST or USER@HOST:PORT", text);
  }
  return entry;
}

Result<void> read_token(const Config& config, ClusterOptions& options) {
  if (!options.join) return {};
  auto token = read_or_make_join_token(config.cluster.token_file);
  if (!token.ok()) return about("cluster.token_file", std::move(token).error());
  options.join->token = *token;
  return {};
}

Result<void> check_cluster_keys(const Config::Cluster& cluster) {
  if (cluster.launch != "ssh" && !cluster.hosts.empty()) {
    return fail(ErrorCode::invalid_argument,
                "cluster.hosts: these are reached by ssh: set cluster.launch: ssh");
  }
  if (cluster.launch == "ssh" && cluster.hosts.empty()) {
    return fail(ErrorCode::invalid_argument,
                "cluster.launch: ssh starts nodes on cluster.hosts, which are none");
  }
  return check_join_keys(cluster);
}

Result<std::vector<std::string>> hosts_of(const Config& config) {
  TROUPE_CHECK(check_cluster_keys(config.cluster));
  TROUPE_TRY(auto hosts, all_hosts_of(config));
  TROUPE_CHECK(check_spares(config.cluster, hosts.size()));
  return hosts;
}

bool computes_here(const Config& config) {
  if (config.cluster.launch == "local") return true;
  const char* own_node = std::getenv("SLURMD_NODENAME");  // set in a batch script and in a step
  return config.cluster.launch == "slurm" && own_node != nullptr &&
         config.cluster.hosts == std::vector<std::string>{own_node};
}

int node_count(const Config& config) {
  return std::max(1, static_cast<int>(std::ssize(config.cluster.hosts) - config.cluster.spares));
}

int devices_per_node(const Config& config, int workers) {
  const int nodes = node_count(config);
  return static_cast<int>(config.cluster.devices_per_node.value_or((workers + nodes - 1) / nodes));
}

Result<ClusterOptions> cluster_of(const Config& config, int workers, int cores) {
  ClusterOptions options;
  options.name = config.name;
  TROUPE_TRY(options.ports, ports_of(config.cluster.ports));
  const auto add_node = [&](std::string name) {
    NodeSpec node{.name = std::move(name), .cpus = cores, .devices = {}};
    for (int device = 0; device < devices_per_node(config, workers); ++device) {
      node.devices.push_back(device);
    }
    node.is_spare = std::ssize(options.nodes) >= node_count(config);
    options.nodes.push_back(std::move(node));
  };
  if (config.cluster.launch == "local") {
    add_node("node0");
    options.observer_address = address_for_login_host(config);
    return options;
  }
  if (config.cluster.launch == "join") {
    for (const std::string& name : config.cluster.hosts) add_node(name);
    TROUPE_CHECK(let_nodes_join(config.cluster, options));
    return options;
  }
  SshNodeStarter::Options ssh;
  ssh.copies_program = config.cluster.copy_program;
  ssh.copied_beside = {"libtroupe_cuda.so"};
  ssh.folder = std::filesystem::current_path().string();
  std::set<std::string> names;
  std::vector<std::string> hosts;
  for (const std::string& text : config.cluster.hosts) {
    const auto host = parse_host(text);
    if (!host.ok()) return about("cluster.hosts", host.error());
    add_node(name_of(host->name, names));
    ssh.host_of_node[options.nodes.back().name] = host->ssh;
    hosts.push_back(host->name);
  }
  TROUPE_TRY(options.address, address_for(config, hosts));
  options.start_timeout = ssh.connect_timeout + options.start_timeout;
  if (config.cluster.launch == "slurm") {
    options.starter = std::make_shared<SlurmNodeStarter>();
    if (is_loopback(options.address)) options.observer_address = address_for_login_host(config);
  } else {
    options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  }
  return options;
}

}  // namespace troupe
