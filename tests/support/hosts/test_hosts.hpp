#pragma once

#include <initializer_list>
#include <string>

namespace troupe::test {

/// Runs this program again under with-hosts, which gives it `count` other hosts, unless that has
/// been done or is not wanted (tests that are only listed); returns in the former. Where hosts
/// cannot be made (not root, or packages are missing) it returns too, and missing_hosts() says why.
void run_with_hosts(int count, int argc, char** argv);

/// Why there are no hosts; empty if there are. A test that needs them skips with it.
std::string missing_hosts();

/// Why with-hosts and with-slurm cannot run here, of which `programs` are the needs; empty if they
/// can.
std::string missing_for_hosts(std::initializer_list<const char*> programs);
/// The same for with-slurm.
std::string missing_slurm();

/// The host's name and address, from 1: "h1", "10.77.0.1". This one is 10.77.0.254.
std::string host_name(int index);
std::string host_address(int index);
inline constexpr const char* own_address = "10.77.0.254";

/// A user besides root, who can reach all hosts by ssh.
struct HostUser {
  const char* name;
  unsigned int uid;  ///< and gid
};
inline constexpr HostUser ann{"ann", 20001}, ben{"ben", 20002};

/// Runs a shell command on the host, which has files in common with this machine and mounts of its
/// own. Throws if it fails.
void on_host(int index, const std::string& command);

/// Cuts the host's link, or mends it: packets are lost in both directions.
void set_link(int index, bool up);

}  // namespace troupe::test
