#include "runtime/object/registration_scope.hpp"

namespace troupe {
namespace {

thread_local RegistrationScope* innermost = nullptr;

}  // namespace

RegistrationScope::RegistrationScope() : outer_(innermost) { innermost = this; }
RegistrationScope::~RegistrationScope() { innermost = outer_; }
RegistrationScope* RegistrationScope::current() { return innermost; }

}  // namespace troupe
