#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// How far the producer of a stream may be ahead of its reader.
struct StreamWindow {
  std::uint32_t items = 16;
  /// No further item follows while as many bytes are unread; one item may have any size.
  std::uint64_t bytes = std::uint64_t{1} << 20;

  template <class Archive>
  void fields(Archive& archive) {
    archive(items, bytes);
  }
};

// A stream is a few calls of its reader to its actor. The call of the method opens it; it and each
// pull are answered with a StreamBatch as soon as there is an item or the end.

using StreamId = std::uint64_t;  ///< drawn at random by the reader

/// Ahead of the method's arguments.
struct StreamOpen {
  StreamId id = 0;
  StreamWindow window;

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, window);
  }
};

/// Asks for more: the arguments of stream_pull_method.
struct StreamPull {
  StreamId id = 0;
  std::uint64_t read = 0;  ///< items that the reader has taken so far

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, read);
  }
};

/// Ends a stream: the arguments of stream_close_method.
struct StreamClose {
  StreamId id = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(id);
  }
};

inline constexpr std::uint16_t stream_pull_method = first_reserved_method;
inline constexpr std::uint16_t stream_close_method = first_reserved_method + 1;

struct StreamBatch {
  std::vector<Bytes> items;  ///< encoded values
  bool is_end = false;       ///< nothing follows the items
  bool is_error = false;     ///< it ended with an error
  ErrorCode code{};
  std::string message;

  template <class Archive>
  void fields(Archive& archive) {
    archive(items, is_end, is_error, code, message);
  }
};

}  // namespace troupe
