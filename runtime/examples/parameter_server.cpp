// Fits a line through 4,000 points by gradient descent, data parallel: four workers hold a quarter
// of the points each, and a server actor the weights. In each step a worker pulls the weights,
// computes the gradient of its points and adds it up with the others' by an all-reduce, over shared
// memory on a node and over the network between nodes; the first worker pushes the sum.
//
//   parameter_server                    on this machine
//   parameter_server --hosts h1,h2      over ssh, the workers in turns
// Both print "y = 3.00 a -2.00 b +1.00 after 300 steps".
#include <cstdio>
#include <string_view>
#include <vector>

#include <troupe/parallel.hpp>

using namespace std::chrono_literals;

constexpr int workers = 4, steps = 300, points = 4000;

class ParameterServer {
 public:
  std::vector<float> pull() { return weights_; }
  troupe::Result<void> push(const std::vector<float>& gradient) {
    if (gradient.size() != weights_.size()) {
      return troupe::fail(troupe::ErrorCode::invalid_argument, "{} numbers for {} weights",
                          gradient.size(), weights_.size());
    }
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= 0.5F * gradient[i] / points;
    return {};
  }

  using Methods = troupe::Methods<&ParameterServer::pull, &ParameterServer::push>;

 private:
  std::vector<float> weights_ = {0, 0, 0};
};

class Worker final : public troupe::GroupMember {
 public:
  Worker(troupe::ActorContext& context, troupe::ActorHandle<ParameterServer> server)
      : GroupMember(context), server_(std::move(server)) {}

  troupe::Result<void> train() {
    const auto group = collectives();
    if (!group) return troupe::fail(troupe::ErrorCode::invalid_argument, "there is no group yet");
    for (int step = 0; step < steps; ++step) {
      TROUPE_TRY(const auto weights, server_.call<&ParameterServer::pull>().get(10s));
      auto gradient = gradient_of(weights);
      TROUPE_CHECK(group->all_reduce_tree({gradient.data(), troupe::DType::f32, {3}}));
      if (group->rank() == 0) {
        TROUPE_CHECK(server_.call<&ParameterServer::push>(gradient).get(10s));
      }
      TROUPE_CHECK(group->barrier());  // the next pull sees this step
    }
    return {};
  }

  using Arguments = troupe::Arguments<troupe::ActorHandle<ParameterServer>>;
  using Methods = GroupMember::Methods::plus<&Worker::train>;

 private:
  // Of the squared errors of this worker's points: every fourth one of y = 3 a - 2 b + 1.
  std::vector<float> gradient_of(const std::vector<float>& weights) const {
    std::vector<float> sum(3);
    for (int i = seat().rank; i < points; i += workers) {
      const auto a = static_cast<float>(i % 63) / 31.0F - 1.0F;
      const auto b = static_cast<float>(i % 41) / 20.0F - 1.0F;
      const float error = weights[0] * a + weights[1] * b + weights[2] - (3 * a - 2 * b + 1);
      sum[0] += error * a;
      sum[1] += error * b;
      sum[2] += error;
    }
    return sum;
  }

  troupe::ActorHandle<ParameterServer> server_;
};

troupe::Result<void> fit(std::string_view hosts) {
  TROUPE_TRY(auto options, troupe::ssh_cluster(hosts));
  TROUPE_TRY(const auto cluster, troupe::Cluster::start(std::move(options)));
  TROUPE_TRY(const auto server, cluster->spawn<ParameterServer>({.name = "server"}).get(10s));

  const auto nodes = cluster->nodes();
  std::vector<troupe::ActorHandle<Worker>> team;
  for (int i = 0; i < workers; ++i) {
    const auto& node = nodes[static_cast<std::size_t>(i) % nodes.size()].spec.name;
    TROUPE_TRY(auto worker, cluster->spawn<Worker>({.node = node}, server).get(10s));
    team.push_back(std::move(worker));
  }
  troupe::ActorGroup group("workers", {team.begin(), team.end()});
  TROUPE_CHECK(group.form());

  std::vector<troupe::Future<void>> trained;
  for (const auto& worker : team) trained.push_back(worker.call<&Worker::train>());
  for (auto& worker : trained) TROUPE_CHECK(worker.get(60s));

  TROUPE_TRY(const auto weights, server.call<&ParameterServer::pull>().get(10s));
  std::printf("y = %.2f a %+.2f b %+.2f after %d steps\n", weights[0], weights[1], weights[2],
              steps);
  return {};
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  const bool over_hosts = argc == 3 && std::string_view(argv[1]) == "--hosts";
  if (argc > 1 && !over_hosts) {
    std::puts("parameter_server [--hosts h1,h2,...]: fits a line on the nodes of a cluster");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const auto fitted = fit(over_hosts ? argv[2] : "");
  if (!fitted.ok()) std::fprintf(stderr, "parameter_server: %s\n", fitted.error().message.c_str());
  return fitted.ok() ? 0 : 1;
}
