#pragma once

namespace troupe::test {

/// The thread of a process that has computed the most; 0 if there is none.
int busiest_thread(int pid);

/// A thread that is stopped while the others of its process go on, until the destructor. Everything
/// on the thread that made it.
class StoppedThread {
 public:
  /// Stops it (ptrace); throws std::runtime_error if that is not possible.
  explicit StoppedThread(int thread);
  ~StoppedThread();
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  /// True once it is gone. Its process does not end before this has been asked.
  bool is_gone();

 private:
  const int thread_;
  bool is_gone_ = false;
};

}  // namespace troupe::test
