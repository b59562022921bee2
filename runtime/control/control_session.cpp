#include "runtime/control/control_session.hpp"

namespace troupe {

ControlSession ControlSession::with_agent(Hello expected) {
  return {ControlEdge::agent_to_driver, std::move(expected)};
}

ControlSession ControlSession::with_driver() {
  return {ControlEdge::driver_to_agent, std::nullopt};
}

Result<ControlMessage> ControlSession::on_frame(std::span<const std::byte> frame) {
  TROUPE_TRY(auto message, decode_message(frame, incoming_));
  TROUPE_CHECK(check_hello(message));
  return message;
}

Result<void> ControlSession::check_hello(const ControlMessage& message) {
  const auto* hello = std::get_if<AgentReady>(&message);
  if (!expected_) {
    if (hello == nullptr) return {};
    return fail(ErrorCode::permission_denied, "an agent that introduces itself again");
  }
  if (hello == nullptr) {
    return fail(ErrorCode::permission_denied, "an agent that does not introduce itself first");
  }
  if (hello->build != expected_->build) {
    return fail(ErrorCode::unsupported,
                "the agent of '{}' is of another build: it is {}, this driver {}; start all "
                "processes of a job from one "
                "installation",
                expected_->node, to_hex(std::span(hello->build).first(6)),
                to_hex(std::span(expected_->build).first(6)));
  }
  if (hello->node != expected_->node) {
    return fail(ErrorCode::permission_denied, "the agent of '{}' introduces itself as that of '{}'",
                expected_->node, hello->node);
  }
  expected_.reset();
  return {};
}

}  // namespace troupe
