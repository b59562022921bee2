#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Copies what a program says, line by line, to a log file, on a thread of its own. A program such
/// as ssh that meets a full disk itself takes nothing more from the other host, for good, and holds
/// up whoever logs there. Here lines that the disk does not take are dropped, and counted in the
/// log once there is room.
class LogRelay {
 public:
  /// Errors: as LineFile::open; io.
  static Result<std::unique_ptr<LogRelay>> start(const std::string& path);
  /// Gives whole lines to `take` instead, on the thread. Errors: io.
  static Result<std::unique_ptr<LogRelay>> start(std::function<void(std::string_view)> take);
  ~LogRelay() { finish(); }
  LogRelay(const LogRelay&) = delete;
  LogRelay& operator=(const LogRelay&) = delete;

  /// What the program writes to; for its start alone.
  int input() const { return input_.get(); }
  /// Closes this process's own end of input(). Call it once the program has started.
  void close_input() { input_.reset(); }
  /// Copies what has been said by now, and ends; whoever has the program's end open does not
  /// matter.
  void finish();

 private:
  LogRelay(std::function<void(std::string_view)> take, UniqueFd input, UniqueFd output,
           UniqueFd ended)
      : take_(std::move(take)),
        input_(std::move(input)),
        output_(std::move(output)),
        ended_(std::move(ended)) {}
  void run();
  bool take();

  const std::function<void(std::string_view)> take_;
  UniqueFd input_, output_;  ///< of a pipe: the program's end, and the one that is read
  UniqueFd ended_;           ///< an eventfd, readable once finish is called
  std::string unfinished_;   ///< a line without its end
  std::thread thread_;
};

}  // namespace troupe
