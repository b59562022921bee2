#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/object/object_id.hpp"

namespace troupe {

/// Numbers of the methods of a store on the call plane; see object_store.hpp. What two stores must
/// tell each other however many calls are open between them takes no credits.
enum class StoreMethod : std::uint16_t {
  locate,
  open,
  await,
  make_room,
  offer,
  cancel,
  notes = first_reserved_method,
  live,          ///< is never answered, and fails with the process or the link
  are_you_there  ///< is answered at once, with nothing
};

struct StoreNote {
  enum class Kind : std::uint8_t {
    borrow,
    give_back,
    received,  ///< the hold `number`
    unpin,     ///< the pin `number`
    drop_copy,
    copied,
    pull_failed
  };
  Kind kind = Kind::borrow;
  ObjectId object;
  std::uint64_t number = 0;
  /// Grows with each note of the sender, so that one that comes again is known. A sender sends the
  /// notes to one receiver in this order.
  std::uint64_t sequence = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, object, number, sequence);
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
  std::uint64_t pin = 0;         ///< the number of the pin, if one is made
  template <class Archive>
  void fields(Archive& archive) {
    archive(object, reader, locality, failed, pin);
  }
};
/// Where a segment is.
struct SegmentPlace {
  std::string server;       ///< the holder's SegmentServer
  std::uint64_t token = 0;  ///< of that
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;  ///< of the object
  template <class Archive>
  void fields(Archive& archive) {
    archive(server, token, segment, bytes);
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
  std::uint64_t pin = 0;  ///< the number of the pin
  template <class Archive>
  void fields(Archive& archive) {
    archive(object, reader, for_pull, pin);
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
/// Answered once so many of the objects are ready, with all that are; who waits no longer cancels
/// the call.
struct AwaitRequest {
  std::vector<std::uint64_t> numbers;  ///< each once
  std::uint64_t min_ready = 0;
  std::string reader;  ///< the asking process's endpoint
  template <class Archive>
  void fields(Archive& archive) {
    archive(numbers, min_ready, reader);
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

}  // namespace troupe
