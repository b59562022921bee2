#include "runtime/call/callback.hpp"

#include "runtime/base/log.hpp"

namespace troupe {
namespace {

// Aligned as sections are: mold 1.10 puts a smaller variable alone on a page that is not mapped if
// the code segment happens to end just below the page's end.
alignas(64) thread_local bool thread_runs_callback = false;

}  // namespace

bool runs_callback() { return thread_runs_callback; }

namespace callback_detail {

bool set_runs_callback(bool runs) { return std::exchange(thread_runs_callback, runs); }

void report_exception(std::string_view text) { log::error("a callback threw: {}", text); }

}  // namespace callback_detail

}  // namespace troupe
