#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/call/codec.hpp"
#include "runtime/object/object_id.hpp"

namespace troupe {

/// Numbers of the methods of a store on the call plane; see object_store.hpp.
enum class StoreMethod : std::uint16_t {
  notes,
  locate,
  open,
  await,
  make_room,
  list,
  live,
  offer,
  cancel
};

struct StoreNote {
  enum class Kind : std::uint8_t {
    borrow,
    give_back,
    received,  ///< `object.number` is a hold's
    unpin,
    drop_copy,
    copied,
    pull_failed
  };
  Kind kind = Kind::borrow;
  ObjectId object;
  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, object);
  }
};
struct StoreNotes {
  std::string from;  ///< the sender's endpoint
  std::vector<StoreNote> notes;
  template <class Archive>
  void fields(Archive& archive) {
    archive(from, notes);
  }
};
struct StoreNotesAnswer {
  std::vector<ObjectId> unknown;  ///< of those that were to be borrowed
  template <class Archive>
  void fields(Archive& archive) {
    archive(unknown);
  }
};

struct LocateRequest {
  ObjectId object;
  std::string reader, locality;  ///< the asking process's endpoint
  std::string failed;            ///< a holder that does not have it; may be empty
  template <class Archive>
  void fields(Archive& archive) {
    archive(object, reader, locality, failed);
  }
};
/// Where a segment is.
struct SegmentPlace {
  std::string server;  ///< the holder's SegmentServer
  std::uint64_t segment = 0, token = 0;
  std::uint64_t bytes = 0;  ///< of the object
  template <class Archive>
  void fields(Archive& archive) {
    archive(server, segment, token, bytes);
  }
};
struct Located {
  enum class Kind : std::uint8_t {
    small,  ///< `bytes` are the object
    here,   ///< the owner has pinned it for the reader, at `place`
    open,   ///< ask holder
    pull    ///< be the one who gets it from `sources`, of `size` bytes, into this locality
  };
  Kind kind = Kind::small;
  Bytes bytes;
  std::string holder;
  SegmentPlace place;
  std::vector<std::string> sources;
  std::uint64_t size = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, bytes, holder, place, sources, size);
  }
};
/// Pins the object for the reader, unless it is `for_pull`: then only the address of the
/// DataServer is told.
struct OpenRequest {
  ObjectId object;
  std::string reader;
  bool for_pull = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(object, reader, for_pull);
  }
};
struct OpenReply {
  SegmentPlace place;
  std::string data_address;  ///< for_pull
  std::uint16_t data_port = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(place, data_address, data_port);
  }
};
/// Answered once one of the objects is ready, or none is within the time.
struct AwaitRequest {
  std::vector<std::uint64_t> numbers;
  std::int64_t timeout_ms = 0;
  std::string reader;
  template <class Archive>
  void fields(Archive& archive) {
    archive(numbers, timeout_ms, reader);
  }
};
struct AwaitReply {
  std::vector<std::uint64_t> ready;
  template <class Archive>
  void fields(Archive& archive) {
    archive(ready);
  }
};
/// The holder of an object that its owner waits for; answered with whether it still does.
struct StoreOffer {
  ObjectId object;
  std::string holder, locality;
  std::uint64_t bytes = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(object, holder, locality, bytes);
  }
};
struct ListRequest {
  std::uint64_t after = 0;
  std::uint32_t limit = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(after, limit);
  }
};

}  // namespace troupe
