#include "runtime/actor/process_inquiry.hpp"

namespace troupe {

Bytes answer_inquiry(CallObserver& observer, const ObjectStore& objects, const AskProcesses& ask) {
  switch (ask.what) {
    case Inquiry::metrics:
      return encode(observer.snapshot());
    case Inquiry::loads:
      return encode(observer.loads());
    case Inquiry::start_timeline:
      observer.timeline().start(std::chrono::milliseconds(ask.record_ms));
      return {};
    case Inquiry::stop_timeline:
      observer.timeline().stop();
      return {};
    case Inquiry::take_timeline:
      return encode(observer.timeline().take());
    case Inquiry::objects:
      return encode(objects.list({ask.after_owner, ask.after_number}, ask.most));
    case Inquiry::clock:
    case Inquiry::stack:
      break;
  }
  return {};
}

}  // namespace troupe
