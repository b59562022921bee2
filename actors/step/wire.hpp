// Cap'n Proto as the step plane's two codecs include it, and no other file.
#pragma once

#include <kj/string.h>

#ifdef __clang__
// clang-tidy reads this file as well. Cap'n Proto 0.9 relies on a rule of C++20 that was withdrawn
// (P2468R2: no reversed operator== beside an operator!=), to which g++ 12 still keeps.
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

/// A message that contradicts itself; caught at the borders of the codecs.
struct Contradiction {
  const char* what;
};

}  // namespace troupe
