#include "runtime/node/stack_reader.hpp"

#include <span>
#include <system_error>

#include "runtime/process/process_stack.hpp"

namespace troupe {

StackReader::~StackReader() {
  for (Work& work : work_) work.thread.join();
}

void StackReader::begin(std::uint64_t request, ProcessReport of) {
  work_.remove_if([](Work& work) {
    if (!work.is_done) return false;
    work.thread.join();
    return true;
  });
  NodeReport report{.request = request, .processes = {}};
  if (work_.size() == max_running) {
    report.problem = "its agent reads other stacks at the moment";
    return send_(std::move(report));
  }
  Work& work = work_.emplace_back();
  try {
    work.thread = std::thread([this, &work, report, of = std::move(of)]() mutable {
      auto stack = process_stack(of.pid, limit);
      if (stack.ok()) {
        const auto text = std::as_bytes(std::span(*stack));
        of.bytes = Bytes(text.begin(), text.end());
        report.processes.push_back(std::move(of));
      } else {
        report.problem = stack.error().message;
      }
      send_(std::move(report));
      work.is_done = true;
    });
  } catch (const std::system_error& error) {
    work_.pop_back();
    report.problem = error.what();
    send_(std::move(report));
  }
}

}  // namespace troupe
