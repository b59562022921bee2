#include "actors/driver/recovery.hpp"

#include <algorithm>
#include <utility>

#include "parallel/group/actor_group.hpp"
#include "runtime/base/exception_text.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

Recovery::Recovery(Domain& domain, std::function<void()> on_paused, std::function<void()> on_ended)
    : domain_(domain), on_paused_(std::move(on_paused)), on_ended_(std::move(on_ended)) {}

Recovery::~Recovery() {
  if (attempt_.joinable()) attempt_.join();
}

bool Recovery::lost(const ActorDown& down, Clock::time_point now) {
  const bool must_begin = !is_running() && domain_.needs(down);
  const bool matters = must_begin || is_running() || !down.restarts;
  if (!losses_.note(down, matters, now)) {
    log::info("reported late, and recovered from already: {}", down.message);
  }
  return must_begin;
}

void Recovery::begin() {
  known_ = losses_.size();
  attempt_ = std::thread([this] {
    try {
      outcome_ = domain_.recover([this] { return losses(); }, on_paused_);
    } catch (...) {
      outcome_ = fail(ErrorCode::internal, "the recovery threw: {}", current_exception_text());
    }
    on_ended_();
  });
}

Recovery::Next Recovery::ended() {
  attempt_.join();
  if (!outcome_->ok()) {
    // It has waited for a node, or there is no memory.
    if (outcome_->error().code == ErrorCode::resource_exhausted) return Next::give_up;
    // A new incarnation refuses what the one before it was prepared for.
    const bool is_lost_meanwhile = losses_.size() > known_;
    return is_lost_meanwhile || is_loss(outcome_->error()) ? Next::again : Next::give_up;
  }
  const std::vector<ActorDown> all = losses_.all();
  const bool is_complete =
      std::ranges::none_of(all, [this](const ActorDown& down) { return domain_.needs(down); });
  return is_complete ? Next::nothing : Next::again;
}

std::optional<EngineRecovery> Recovery::take_untold() {
  std::vector<std::string> given_up = domain_.take_given_up();
  const std::size_t suspects = domain_.take_suspects();
  if (told_ >= losses_.size() && given_up.empty() && suspects == 0) return std::nullopt;
  told_ = losses_.size();
  return EngineRecovery{
      .lost = losses_.all(), .given_up = std::move(given_up), .suspects = suspects};
}

std::optional<EngineRecovery> Recovery::take_complete() {
  if (losses_.empty() || is_running() || !first_step_ || first_step_->epoch != domain_.epoch()) {
    return std::nullopt;
  }
  const FirstStep step = *std::exchange(first_step_, std::nullopt);
  told_ = 0;
  const std::chrono::duration<double> until_start = domain_.started_at() - losses_.since();
  return EngineRecovery{.lost = losses_.take(),
                        .seconds = until_start.count() + static_cast<double>(step.wait_us) * 1e-6,
                        .sequences = step.sequences,
                        .lost_work = step.lost,
                        .unsaved_tokens = domain_.take_unsaved(),
                        .epoch = step.epoch,
                        .given_up = {},
                        .suspects = 0,
                        .hang = std::exchange(hang_, {})};
}

}  // namespace troupe
