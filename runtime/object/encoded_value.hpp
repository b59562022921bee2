#pragma once

#include <memory>
#include <vector>

#include "runtime/call/codec.hpp"
#include "runtime/object/object_ref.hpp"

namespace troupe {

/// Encoded arguments, and the objects that references among them refer to: these live as long as it
/// does, so that whoever decodes the bytes meanwhile finds them.
struct EncodedArguments {
  Bytes bytes;
  std::vector<ObjectSharePtr> objects;
};

template <class Arguments>
EncodedArguments encode_arguments(const Arguments& arguments) {
  Encoder encoder;
  encoder(arguments);
  EncodedArguments encoded;
  for (const auto& kept : encoder.take_kept()) {
    encoded.objects.push_back(std::static_pointer_cast<const ObjectShare>(kept));
  }
  encoded.bytes = encoder.take();
  return encoded;
}

}  // namespace troupe
