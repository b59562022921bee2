#include "runtime/object/object_id.hpp"

#include "runtime/base/hash.hpp"

namespace troupe {

StoreId store_at(const std::string& endpoint) {
  // The first word is the process's name on the call plane, which has 128 random bits.
  return hash_128(std::string_view(endpoint).substr(0, endpoint.find(' '))).first | store_bit;
}

std::string locality_of(const std::string& endpoint) {
  const auto before = endpoint.find(' ');
  if (before == std::string::npos) return "";
  return endpoint.substr(before + 1, endpoint.find(' ', before + 1) - before - 1);
}

ActorAddress address_of_store(const std::string& endpoint) {
  ActorAddress address;
  address.id = store_at(endpoint);
  address.endpoint = endpoint;
  address.name = "object store";
  address.type = "troupe.ObjectStore";
  return address;
}

}  // namespace troupe
