#include <algorithm>

#include <gtest/gtest.h>

#include "runtime/call/answer_table.hpp"
#include "runtime/call/call_hub.hpp"
#include "tests/support/thread_cpu_time.hpp"
#include "tests/unit/runtime/call/manual_transport.hpp"

// What one event takes must not grow with what it does not concern. All runs on the test's thread,
// whose CPU time is measured.

namespace troupe {
namespace {

constexpr int few = 2000, many = 20 * few;
/// Of the times with many and with few others. It would be 20 if each event looked at all; caches
/// make for up to 3.
constexpr double most = 8;

/// `time_of(others)` gives what events have taken beside so many others; the least of some runs
/// counts.
template <class TimeOf>
void expect_no_growth(const TimeOf& time_of, int few_others, int many_others, int runs = 5) {
  const double with_few = least_of(runs, [&] { return time_of(few_others); });
  const double with_many = least_of(runs, [&] { return time_of(many_others); });
  EXPECT_LT(with_many, most * with_few);
}

struct ManualHub {
  explicit ManualHub(CallHub::Options options = {}) {
    options.credits = std::size_t{1} << 20;
    auto made = std::make_unique<ManualTransport>();
    transport = made.get();
    hub = *CallHub::create(std::move(made), options);
  }
  ~ManualHub() { hub->stop(); }

  CallTicket call(const ActorAddress& actor, const CallTerms& terms = {}) {
    return hub->call(
        actor, 0, {},
        [this](const Result<Bytes>& answer) {
          ++(answer.ok() ? answered : failed);
          if (!answer.ok()) last_error = answer.error();
        },
        terms);
  }

  ManualTransport* transport = nullptr;
  std::shared_ptr<CallHub> hub;
  int answered = 0, failed = 0;
  Error last_error;
};

ActorAddress actor_at(const std::string& endpoint, ActorId id, bool is_restartable = false) {
  return {id, endpoint, "actor", "Actor", 0, is_restartable};
}

constexpr int doomed = 500;
constexpr ActorId first_doomed = 1000;

double time_of_deaths(int others) {
  ManualHub calls;
  for (ActorId id = 0; id < doomed; ++id) calls.call(actor_at("there", first_doomed + id));
  for (int i = 0; i < others; ++i) calls.call(actor_at("there", 1));
  const double start = thread_cpu_s();
  for (ActorId id = 0; id < doomed; ++id) calls.hub->mark_down(first_doomed + id, "it was eaten");
  calls.transport->run_due();
  const double took = thread_cpu_s() - start;
  EXPECT_EQ(calls.failed, doomed);
  EXPECT_EQ(calls.last_error.message, "it was eaten");
  return took;
}

TEST(CallCosts, of_deaths_are_those_of_the_calls_to_the_dead) {
  expect_no_growth(time_of_deaths, few, many);
}

double time_of_handovers(int others) {
  ManualHub calls;
  for (ActorId id = 0; id < doomed; ++id) {
    const ActorAddress address = actor_at("there", first_doomed + id, true);
    calls.hub->mark_moved(address);
    calls.call(address, {.max_retries = 1});
  }
  for (int i = 0; i < others; ++i) calls.call(actor_at("there", 1));
  const std::size_t sent = calls.transport->links()[0]->sent().size();
  EXPECT_EQ(sent, 1U + doomed + others) << "with the hello";
  const double start = thread_cpu_s();
  for (ActorId id = 0; id < doomed; ++id) {
    ActorAddress next = actor_at("there", first_doomed + id, true);
    calls.hub->mark_restarting(next.id, 0, "it was eaten");
    next.incarnation = 1;
    calls.hub->mark_moved(next);
  }
  for (int i = 0; i < 3; ++i) calls.transport->run_due();
  const double took = thread_cpu_s() - start;
  EXPECT_EQ(calls.transport->links()[0]->sent().size(), sent + doomed) << "each is sent again";
  EXPECT_EQ(calls.failed, 0);
  return took;
}

TEST(CallCosts, of_handovers_are_those_of_the_calls_to_the_actor) {
  expect_no_growth(time_of_handovers, few, many);
}

double time_of_cancels(int links) {
  ManualHub calls;
  for (int i = 0; i < links; ++i) calls.call(actor_at(fmt::format("process {}", i), 1));
  std::vector<CallTicket> tickets;
  for (int i = 0; i < 1000; ++i) tickets.push_back(calls.call(actor_at("process 0", 2)));
  const double start = thread_cpu_s();
  for (const CallTicket& ticket : tickets) calls.hub->cancel(ticket);
  const double took = thread_cpu_s() - start;
  EXPECT_EQ(
      std::ranges::count(calls.transport->links()[0]->sent(), FrameKind::cancel, &Trailer::kind),
      1000);
  return took;
}

TEST(CallCosts, of_cancels_do_not_grow_with_the_links) {
  expect_no_growth(time_of_cancels, few / 20, many / 20);
}

TEST(CallCosts, of_acknowledgements_are_those_of_their_link) {
  ManualHub calls;
  std::vector<CallTicket> tickets;
  for (const char* there : {"first", "second"}) {
    for (int i = 0; i < 64; ++i)
      tickets.push_back(calls.call(actor_at(there, 1), {.max_retries = 1}));
  }
  // One answer of the first link, and as many of the second as are acknowledged at once.
  calls.transport->answer(0, tickets[0].call);
  for (int i = 64; i < 128; ++i) calls.transport->answer(1, tickets[i].call);
  EXPECT_EQ(calls.answered, 65);
  for (int i = 0; i < 2; ++i) calls.transport->run_due();
  for (const auto& link : calls.transport->links()) {
    EXPECT_EQ(std::ranges::count(link->sent(), FrameKind::acknowledge, &Trailer::kind), 1);
  }
}

TEST(CallCosts, of_ends_that_are_forgotten_early_leave_nothing_behind) {
  std::vector<ActorId> followed;
  ManualHub calls({.remembered_ends = 1, .on_first_call = [&](const ActorAddress& actor) {
                     followed.push_back(actor.id);
                   }});
  calls.call(actor_at("there", 7));
  calls.hub->mark_down(7, "it was eaten");
  calls.hub->mark_down(8, "so was this one");
  calls.transport->run_due();
  EXPECT_EQ(calls.failed, 1) << "its end was told, though nobody knows it any more";
  EXPECT_EQ(calls.last_error.code, ErrorCode::actor_died);
  calls.call(actor_at("there", 7));
  EXPECT_EQ(followed, (std::vector<ActorId>{7, 7}))
      << "its callee was forgotten with its last call";
}

TEST(CallCosts, of_finding_a_call_of_a_link_do_not_grow_with_its_calls) {
  const auto time_of_finds = [](int calls) {
    const auto link = std::make_shared<IncomingLink>(std::make_shared<DeafLink>(),
                                                     std::make_shared<CallObserver>());
    std::vector<std::shared_ptr<RemoteCall>> open;
    // A caller of 64 processes may make each 64th call to this one.
    for (int i = 0; i < calls; ++i) {
      const CallId number = CallId{64} * static_cast<CallId>(i);
      open.push_back(std::make_shared<RemoteCall>(link, RemoteCall::Origin{.call = number}));
    }
    const double start = thread_cpu_s();
    for (int i = 0; i < few; ++i) EXPECT_EQ(link->find(open[i]->origin().call), open[i]);
    const double took = thread_cpu_s() - start;
    EXPECT_EQ(link->find(1), nullptr);
    for (int i = 0; i < calls; ++i) {
      open[i]->answer(Bytes());
      if (i % few == 0) {
        EXPECT_EQ(link->find(open[i]->origin().call), nullptr);
      }
    }
    EXPECT_TRUE(link->unanswered_once().empty());
    return took;
  };
  expect_no_growth(time_of_finds, few, many);
}

TEST(CallCosts, of_keeping_an_answer_do_not_grow_with_those_that_are_dropped) {
  constexpr CallerId caller = 1;
  const auto time_of_answers = [](int calls) {
    const auto table = std::make_shared<AnswerTable>(1000, 1);
    const auto link = std::make_shared<IncomingLink>(std::make_shared<DeafLink>(),
                                                     std::make_shared<CallObserver>());
    EXPECT_TRUE(table->begin_link(caller, 1, 0));
    std::vector<std::shared_ptr<ResendableCall>> open;
    for (int i = 0; i < calls; ++i) {
      const CallId number = static_cast<CallId>(i) + 1;
      const auto make = [&] {
        return std::make_shared<ResendableCall>(
            link, RemoteCall::Origin{.caller = caller, .call = number}, table,
            std::weak_ptr<CallTarget>());
      };
      open.push_back(table->begin_call(caller, 1, 1, number, nullptr, make).call);
    }
    const double start = thread_cpu_s();
    for (const auto& call : open) call->answer(Bytes(100));
    const double took = thread_cpu_s() - start;
    table->clear();
    return took / calls;
  };
  expect_no_growth(time_of_answers, few, many, 3);
}

}  // namespace
}  // namespace troupe
