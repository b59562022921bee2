#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/object/object_id.hpp"

namespace troupe {

/// One object as its owner knows it, for people.
struct ObjectInfo {
  enum class Place : std::uint8_t {
    pending,    ///< its bytes are not there yet
    inside,     ///< small: bytes on the owner's heap
    memory,     ///< in shared memory of the owner
    spilled,    ///< in a file of the owner
    elsewhere,  ///< in other processes only
    failed,     ///< get returns the error that it was fulfilled with
    lost
  };
  ObjectId id;
  std::uint64_t bytes = 0;
  std::string owner;  ///< the process's name
  std::string node;   ///< of the owner
  Place place = Place::inside;
  std::uint32_t copies = 0;     ///< processes that hold it in memory or a file, the owner included
  std::uint32_t borrowers = 0;  ///< other processes that have references
  std::uint32_t pins = 0;       ///< views of the owner's copy, of all processes of its machine
  std::int64_t created_ms = 0;  ///< since 1970, by the owner's clock

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, bytes, owner, node, place, copies, borrowers, pins, created_ms);
  }
};

/// "memory", "spilled" ...
std::string_view to_string(ObjectInfo::Place place);

/// Some objects by id, of one process or of many.
struct ObjectPage {
  std::vector<ObjectInfo> objects;
  std::uint64_t all_objects = 0;  ///< that there are at this moment

  template <class Archive>
  void fields(Archive& archive) {
    archive(objects, all_objects);
  }
};

}  // namespace troupe
