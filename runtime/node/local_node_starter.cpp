#include <mutex>

#include "runtime/node/node_starter.hpp"
#include "runtime/process/child_channel.hpp"

namespace troupe {
namespace {

class LocalNodeProcess final : public NodeProcess {
 public:
  LocalNodeProcess(ChildProcess process, std::unique_ptr<ChildChannel> channel)
      : process_(std::move(process)), channel_(std::move(channel)) {}
  int pid() const override { return process_.pid(); }
  std::optional<ExitStatus> wait(std::chrono::milliseconds timeout) override {
    std::lock_guard lock(mutex_);
    return process_.wait(timeout);
  }
  void signal(int signal_number) override { process_.signal(signal_number); }

 private:
  std::mutex mutex_;
  ChildProcess process_;
  std::unique_ptr<ChildChannel> channel_;  ///< its closing tells the agent that this process is
                                           ///< gone
};

}  // namespace

Result<std::unique_ptr<NodeProcess>> LocalNodeStarter::start(const std::string& node,
                                                             const Bytes& bootstrap,
                                                             const std::string& log_path) {
  TROUPE_TRY(auto ends, ChildChannel::make_pair());
  TROUPE_TRY(
      auto process,
      ChildProcess::start(
          {{"troupe: agent of " + node, "--troupe-process=agent"}, log_path, ends.second.get()}));
  auto channel = std::make_unique<ChildChannel>(std::move(ends.first));
  TROUPE_CHECK(channel->send(bootstrap));
  TROUPE_CHECK(channel->drain(2000));
  return std::unique_ptr<NodeProcess>(
      std::make_unique<LocalNodeProcess>(std::move(process), std::move(channel)));
}

}  // namespace troupe
