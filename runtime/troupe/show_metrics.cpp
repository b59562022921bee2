#include <cstdio>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"
#ifdef TROUPE_HTTP
#include "runtime/http/metrics_server.hpp"
#endif

namespace troupe {
namespace {

#ifdef TROUPE_HTTP
constexpr std::chrono::milliseconds look_interval{500};

/// One scrape at a time asks; the server calls this on one thread.
std::string ask_metrics(StateClient& client) {
  const auto reply = client.get<MetricsReply>(AskMetrics{}, answer_limit);
  return reply.ok() ? reply->text : "";
}

Result<int> serve(StateClient& client, const StateCommand& command) {
  TROUPE_TRY(const auto server, MetricsServer::start(command.address, *command.listen,
                                                     [&client] { return ask_metrics(client); }));
  print(server->url() + "\n");
  std::fflush(stdout);
  while (!client.wait_until_closed(look_interval)) {
  }
  std::fputs("the cluster has ended\n", stderr);
  return 0;
}
#else
Result<int> serve(StateClient&, const StateCommand&) {
  return fail(ErrorCode::unsupported,
              "this program was built without libmicrohttpd, which --listen needs");
}
#endif

}  // namespace

Result<int> show_metrics(const ReachedCluster& cluster, const StateCommand& command) {
  StateClient& client = *cluster.client;
  if (command.listen) return serve(client, command);
  TROUPE_TRY(const auto reply, client.get<MetricsReply>(AskMetrics{}, answer_limit));
  print(reply.text);
  return 0;
}

}  // namespace troupe
