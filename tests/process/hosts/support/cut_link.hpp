#pragma once

#include <utility>

#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {

/// A host's link is cut while this object lives, or until it is mended.
class CutLink {
 public:
  explicit CutLink(int host) : host_(host) { set_link(host, false); }
  ~CutLink() { mend(); }
  CutLink(const CutLink&) = delete;
  CutLink& operator=(const CutLink&) = delete;

  void mend() {
    if (std::exchange(is_cut_, false)) set_link(host_, true);
  }

 private:
  const int host_;
  bool is_cut_ = true;
};

}  // namespace troupe::test
