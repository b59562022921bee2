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

  /// Reads on until it is known whether the input has a request that the engine is to answer; what
  /// was read is kept for next(). False: it has none. True also for a pipe that is silent, and
  /// behind 16 MiB of bad lines. An input that breaks has none. Errors: cancelled by `keep_going`.
  Result<bool> has_request(const KeepGoing& keep_going);

  /// As BatchReader::next.
  Result<BatchReader::Item> next(std::chrono::milliseconds timeout);

 private:
  static constexpr std::size_t max_bytes = std::size_t{16} << 20;

  BatchReader reader_;
  std::deque<Result<BatchReader::Item>> ahead_;
};

}  // namespace troupe
