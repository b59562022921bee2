#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/call/codec.hpp"
#include "runtime/object/object_ref.hpp"

namespace troupe {

/// An encoded value, and the objects that references in it refer to: these live as long as it does,
/// so that whoever decodes the bytes meanwhile finds them.
struct EncodedValue {
  Bytes bytes;
  std::vector<std::shared_ptr<const void>> kept;
};

template <class T>
EncodedValue encode_value(const T& value) {
  Encoder encoder;
  encoder(value);
  auto kept = encoder.take_kept();
  return {encoder.take(), std::move(kept)};
}

/// The same, with the objects as such: an actor's arguments travel by way of the driver.
struct EncodedArguments {
  Bytes bytes;
  std::vector<ObjectSharePtr> objects;
};

template <class Arguments>
EncodedArguments encode_arguments(const Arguments& arguments) {
  auto [bytes, kept] = encode_value(arguments);
  EncodedArguments encoded{std::move(bytes), {}};
  for (const auto& object : kept) {
    encoded.objects.push_back(std::static_pointer_cast<const ObjectShare>(object));
  }
  return encoded;
}

}  // namespace troupe
