#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

/// Numbers of registrations with owners that were not acknowledged (ObjectStore::when_registered).
using Registrations = std::vector<std::uint64_t>;

/// While it lives, the references that this thread decodes from arguments and objects are noted
/// here, if their owners have not acknowledged them. Scopes nest; the innermost one counts. Belongs
/// to the thread that made it.
class RegistrationScope {
 public:
  RegistrationScope();
  ~RegistrationScope();
  RegistrationScope(const RegistrationScope&) = delete;
  RegistrationScope& operator=(const RegistrationScope&) = delete;

  /// The innermost scope of this thread; null outside of all.
  static RegistrationScope* current();

  void add(std::uint64_t registration) { open_.push_back(registration); }
  const Registrations& open() const { return open_; }

 private:
  RegistrationScope* const outer_;
  Registrations open_;
};

}  // namespace troupe
