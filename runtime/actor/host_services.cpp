#include "runtime/actor/host_services.hpp"

#include <utility>

namespace troupe {

void HostServices::answer(const CallReply& reply, CallAnswer answer,
                          const Registrations& registrations) const {
  if (!objects || registrations.empty()) return reply(std::move(answer));
  objects->when_registered(registrations,
                           [reply, shared = std::make_shared<CallAnswer>(std::move(answer))] {
                             reply(std::move(*shared));
                           });
}

void HostServices::report_end(const ActorDown& down) const {
  if (down.restarts) {
    hub->mark_restarting(down.id, down.incarnation, down.message);
  } else {
    hub->mark_down(down.id, down.message);
  }
  watches->on_down(down);
}

}  // namespace troupe
