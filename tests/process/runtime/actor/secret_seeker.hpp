#pragma once

#include <string>

#include <sys/prctl.h>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

/// Requests keys.
class SecretSeeker {
 public:
  explicit SecretSeeker(ActorContext& context) : context_(context) {}
  int dumpable() { return ::prctl(PR_GET_DUMPABLE); }
  Result<std::string> key(const std::string& purpose, const std::vector<std::string>& members) {
    TROUPE_TRY(const Key key, context_.channel_key({purpose, members}));
    return to_hex(key);
  }

  static constexpr std::string_view actor_type = "SecretSeeker";
  using Methods = troupe::Methods<&SecretSeeker::dumpable, &SecretSeeker::key>;

 private:
  ActorContext& context_;
};

}  // namespace troupe::test
