#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

#include "launcher/batch/input/batch_reader.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A job's input, of which a little may be read before the model is loaded: a job whose lines are
/// all bad needs no model. One thread at a time.
class InputAhead {
 public:
  explicit InputAhead(BatchReader reader) : reader_(std::move(reader)) {}

  /// Reads until it finds a request for the engine; keeps what it read for next(). False: the input
  /// has no request. Returns true also for a silent pipe, and after 16 MiB of bad lines. A broken
  /// input has none. Errors: cancelled by `keep_going`.
  Result<bool> has_request(const KeepGoing& keep_going);

  /// Like BatchReader::next.
  Result<BatchReader::Item> next(std::chrono::milliseconds timeout);

 private:
  static constexpr std::size_t max_bytes = std::size_t{16} << 20;

  BatchReader reader_;
  std::deque<Result<BatchReader::Item>> ahead_;
};

}  // namespace troupe
