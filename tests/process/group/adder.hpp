#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "parallel/group/actor_group.hpp"
#include "parallel/group/group_member.hpp"
#include "runtime/actor/cluster.hpp"

namespace troupe::test {

/// How the adders of a test meet.
struct AdderOptions {
  bool shares_memory = true;
  bool in_pairs = false;  ///< also with the neighbour: ranks 0 and 1, 2 and 3, ...
  int odd_rank = -1;      ///< this one thinks that it makes no pair
  int frozen_rank = -1;   ///< in the first epoch this one stops between listen() and connect()

  template <class Archive>
  void fields(Archive& archive) {
    archive(shares_memory, in_pairs, odd_rank, frozen_rank);
  }
};

/// Adds up numbers over its group, and holds one of its own.
class Adder final : public GroupMember {
 public:
  Adder(ActorContext& context, AdderOptions options) : GroupMember(context), options_(options) {}

  void hold(int value) { held_ = value; }
  int held() { return held_; }
  int pid() { return ::getpid(); }
  std::uint32_t epoch() { return seat().epoch; }
  Result<float> sum(const std::string& of, float own) {
    const auto all = collectives(of);
    if (!all) return fail(ErrorCode::not_found, "no communicator '{}'", of);
    TROUPE_CHECK(all->all_reduce_tree({&own, DType::f32, {1}}));
    return own;
  }

  using Arguments = troupe::Arguments<AdderOptions>;
  using Methods = GroupMember::Methods::plus<&Adder::hold, &Adder::held, &Adder::pid, &Adder::epoch,
                                             &Adder::sum>;
  static constexpr std::string_view actor_type = "Adder";

 private:
  Result<std::vector<CommunicatorSpec>> communicators() override {
    TROUPE_TRY(auto specs, GroupMember::communicators());
    specs.front().shares_memory = options_.shares_memory;
    const int rank = seat().rank;
    if (options_.frozen_rank >= 0 && seat().epoch == 1) freeze(rank);
    if (options_.in_pairs && rank != options_.odd_rank) {
      specs.push_back({.name = "pair", .ranks = {rank - rank % 2, rank - rank % 2 + 1}});
    }
    return specs;
  }

  /// The first rank is slow, so that the frozen one stops after its own listen() and before
  /// connect().
  void freeze(int rank) const {
    using namespace std::chrono_literals;
    if (rank == 0) std::this_thread::sleep_for(400ms);
    if (rank != options_.frozen_rank) return;
    std::thread([] {
      std::this_thread::sleep_for(200ms);
      ::kill(::getpid(), SIGSTOP);
    }).detach();
  }

  AdderOptions options_;
  int held_ = 0;
};

/// An actor that forms a group of adders, which outlive it.
class Owner {
 public:
  Result<float> form(std::vector<ActorHandle<Adder>> adders) {
    ActorGroup group("owned", {adders.begin(), adders.end()});
    TROUPE_CHECK(group.form());
    std::vector<Future<float>> sums;
    for (const auto& adder : adders) {
      sums.push_back(adder.call<&Adder::sum>(std::string(whole_group), 1.0F));
    }
    return sums.front().get(std::chrono::seconds(20));
  }

  static constexpr std::string_view actor_type = "Owner";
  using Methods = troupe::Methods<&Owner::form>;
};

}  // namespace troupe::test
