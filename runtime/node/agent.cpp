#include "runtime/node/agent.hpp"

#include <array>
#include <csignal>

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "runtime/base/host_name.hpp"
#include "runtime/base/log.hpp"
#include "runtime/node/agent_loop.hpp"
#include "runtime/node/join_token.hpp"
#include "runtime/node/key_text.hpp"
#include "runtime/node/node_ticket.hpp"
#include "runtime/process/unique_fd.hpp"
#include "runtime/security/handshake.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {
namespace {

/// For the ticket to come, and again to reach the driver.
constexpr std::chrono::milliseconds join_limit{10000};

}  // namespace

int run_agent() {
  forbid_dumps();
  // Children get neither the stream nor the signals that are meant for the driver.
  const UniqueFd parent(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) ::signal(number, SIG_IGN);
  auto ticket = read_ticket(parent.get(), join_limit);
  if (!ticket.ok()) return log::error("agent: {}", ticket.error().message), 1;
  return AgentLoop(parent.get(), "the starter of this node has ended").run(*ticket, join_limit);
}

int run_joining_agent(const JoinTarget& target) {
  forbid_dumps();
  // Who is killed before it has joined has said that it was there: lines reach stderr at once.
  (void)log::open("agent", log::to_stderr, log::Level::info);
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&ends, number);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before any thread
  ::signal(SIGPIPE, SIG_IGN);
  const UniqueFd signals(::signalfd(-1, &ends, SFD_CLOEXEC));
  auto token = read_join_token(target.token_file);
  if (!token.ok()) return log::error("agent: {}", token.error().message), 1;
  NodeTicket ticket;
  std::array<std::byte, 4> unique{};
  if (auto drawn = random_bytes(unique); !drawn.ok()) {
    return log::error("agent: {}", drawn.error().message), 1;
  }
  ticket.node = fmt::format("{}/{}", host_name(), to_hex(unique));
  ticket.host = target.host;
  ticket.port = target.port;
  ticket.key = SecretKey(join_key(token->bytes, ticket.node));
  log::info("agent (pid {}) on {} joins the job at {}:{}", ::getpid(), host_name(), target.host,
            target.port);
  return AgentLoop(signals.get(), "it was asked to by a signal").run(ticket, target.patience);
}

}  // namespace troupe
