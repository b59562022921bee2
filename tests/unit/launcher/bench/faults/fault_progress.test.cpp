#include "launcher/bench/faults/fault_progress.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = FaultProgress::Clock;

ActorAddress actor(ActorId id, std::uint32_t incarnation = 0) {
  ActorAddress address;
  address.id = id;
  address.incarnation = incarnation;
  return address;
}

ActorDown down(ActorId id, std::uint32_t incarnation = 0) {
  ActorDown end;
  end.id = id;
  end.incarnation = incarnation;
  return end;
}

EngineRecovery recovery(std::vector<ActorDown> lost, double seconds) {
  EngineRecovery complete;
  complete.lost = std::move(lost);
  complete.seconds = seconds;
  complete.sequences = 4;
  complete.lost_work = {.kv_tokens = 100, .in_flight_tokens = 4};
  complete.unsaved_tokens = 7;
  return complete;
}

class FaultProgressTest : public testing::Test {
 protected:
  const Clock::time_point made_ = Clock::now();
};

TEST_F(FaultProgressTest, counts_the_time_to_the_next_step_from_the_fault) {
  FaultProgress progress({}, {actor(3)}, made_);
  EXPECT_FALSE(progress.is_noticed());
  progress.note_down(down(3), made_ + 20ms);
  EXPECT_TRUE(progress.is_noticed());
  EXPECT_FALSE(progress.is_recovered());
  progress.note(recovery({down(3), down(4)}, 0.5));
  EXPECT_TRUE(progress.is_recovered());
  const FaultRecord record = progress.record();
  EXPECT_NEAR(record.noticed_ms.value(), 20, 1e-6);
  EXPECT_NEAR(record.next_step_seconds.value(), 0.52, 1e-9);
  EXPECT_EQ(record.lost, 2U);
  EXPECT_EQ(record.sequences, 4U);
}

TEST_F(FaultProgressTest, is_not_over_while_a_recovery_goes_on) {
  FaultProgress progress({}, {actor(3)}, made_);
  EngineRecovery begun;
  begun.lost = {down(3)};
  progress.note(begun);
  EXPECT_FALSE(progress.is_recovered());
}

TEST_F(FaultProgressTest, does_not_take_a_former_loss_of_the_same_actor_for_its_own) {
  FaultProgress progress({}, {actor(3, 2)}, made_);
  progress.note(recovery({down(3, 1)}, 0.1));
  EXPECT_FALSE(progress.is_recovered());
  progress.note(recovery({down(3, 2)}, 0.1));
  EXPECT_TRUE(progress.is_recovered());
}

TEST_F(FaultProgressTest, of_a_node_is_over_when_all_its_step_domains_go_on) {
  FaultProgress progress({}, {actor(3), actor(4)}, made_);
  progress.note_down(down(4), made_ + 30ms);
  progress.note_down(down(3), made_ + 10ms);
  progress.note(recovery({down(4)}, 0.2));
  EXPECT_FALSE(progress.is_recovered());
  progress.note(recovery({down(3)}, 0.9));
  EXPECT_TRUE(progress.is_recovered());
  const FaultRecord record = progress.record();
  EXPECT_NEAR(record.noticed_ms.value(), 10, 1e-6) << "the first loss";
  EXPECT_NEAR(record.next_step_seconds.value(), 0.91, 1e-9) << "the last step";
  EXPECT_EQ(record.sequences, 8U);
  EXPECT_EQ(record.kv_tokens, 200U);
  EXPECT_EQ(record.in_flight_tokens, 8U);
  EXPECT_EQ(record.unsaved_tokens, 14U);
}

TEST_F(FaultProgressTest, keeps_the_first_report_of_an_actor) {
  FaultProgress progress({}, {actor(3)}, made_);
  progress.note_down(down(3), made_ + 10ms);
  progress.note_down(down(3), made_ + 500ms);
  EXPECT_NEAR(progress.record().noticed_ms.value(), 10, 1e-6);
}

TEST_F(FaultProgressTest, is_over_once_the_domain_of_its_victims_is_dropped) {
  FaultProgress progress({}, {actor(3), actor(4)}, made_);
  EngineDomainChange change;
  change.actors = {8, 9};
  progress.note(change);
  EXPECT_FALSE(progress.is_recovered()) << "that is another one";
  change.actors = {3, 4, 5};
  change.unsaved_tokens = 6;
  progress.note(change);
  EXPECT_TRUE(progress.is_recovered());
  const FaultRecord record = progress.record();
  EXPECT_EQ(record.dropped_domains, 1U);
  EXPECT_EQ(record.lost, 3U);
  EXPECT_EQ(record.unsaved_tokens, 6U);
  EXPECT_FALSE(record.next_step_seconds) << "the others never stopped";
}

}  // namespace
}  // namespace troupe
