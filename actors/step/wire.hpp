// The step plane's two codecs include Cap'n Proto through this file only.
#pragma once

#include <kj/string.h>

#ifdef __clang__
// For clang-tidy, too: Cap'n Proto 0.9 relies on a rule of C++20 that was withdrawn (P2468R2: no
// reversed operator== beside an operator!=), which g++ 12 still follows.
namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b == a; }
inline bool operator!=(const char* a, const StringPtr& b) { return !(b == a); }
}  // namespace kj
#endif

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include "actors/step/step.capnp.h"

namespace troupe {

/// A message that contradicts itself; caught in the codecs' public functions.
struct Contradiction {
  const char* what;
};

}  // namespace troupe
