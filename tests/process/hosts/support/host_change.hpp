#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {

/// What a shell command does on a host, undone by another one at the end.
class HostChange {
 public:
  HostChange(int index, const std::string& command, std::string undo)
      : index_(index), undo_(std::move(undo)) {
    on_host(index, command);
  }
  ~HostChange() {
    try {
      on_host(index_, undo_);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s\n", problem.what());
    }
  }
  HostChange(const HostChange&) = delete;
  HostChange& operator=(const HostChange&) = delete;

 private:
  const int index_;
  const std::string undo_;
};

}  // namespace troupe::test
