#pragma once

#include <string_view>

#include "actors/api/report.hpp"
#include "runtime/actor/methods.hpp"

namespace troupe {

/// The actor that executors report to, whatever else it does.
class ReportSink {
 public:
  virtual ~ReportSink() = default;

  /// Takes an executor's report; the answers in it are the sink's from here on.
  virtual void report(EngineReport report) = 0;

  using Methods = troupe::Methods<&ReportSink::report>;
  static constexpr std::string_view actor_type = "ReportSink";
};

}  // namespace troupe
