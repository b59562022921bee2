#include "runtime/object/node_ledger.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include <unistd.h>

#include "runtime/process/process_mark.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_lines = 4096;

struct Line {
  std::atomic<std::int32_t> pid{};  ///< 0: free; below 0: being written
  std::atomic<std::uint64_t> started{};
  std::atomic<std::int64_t> bytes{};
  std::atomic<std::uint64_t> pinned{};
  std::atomic<std::int64_t> oldest_idle{};  ///< of steady_clock; 0: nothing can be spilled
  std::array<char, 64> name{};
  std::array<char, 232> endpoint{};
};

std::string text_of(const auto& characters) {
  return {characters.data(), ::strnlen(characters.data(), characters.size())};
}

}  // namespace

struct NodeLedger::Page {
  std::atomic<std::uint64_t> limit;
  std::atomic<std::int64_t> used;
  std::atomic<std::uint64_t> lines;  ///< that were ever taken
  std::array<Line, max_lines> all;
};

std::size_t NodeLedger::bytes_needed() { return (sizeof(Page) + 4095) / 4096 * 4096; }

NodeLedger::Page& NodeLedger::page() const {
  return *reinterpret_cast<Page*>(memory_.bytes().data());
}

Result<std::unique_ptr<NodeLedger>> NodeLedger::join(SharedMemory memory, std::uint64_t limit,
                                                     const std::string& name,
                                                     const std::string& endpoint) {
  std::unique_ptr<NodeLedger> ledger(new NodeLedger(std::move(memory)));
  Page& page = ledger->page();
  std::uint64_t none = 0;
  page.limit.compare_exchange_strong(none, std::max<std::uint64_t>(limit, 1));
  const bool has_cleared = ledger->clear_ended();
  (void)has_cleared;
  for (std::size_t i = 0; i < max_lines; ++i) {
    Line& line = page.all[i];
    std::int32_t free = 0;
    if (!line.pid.compare_exchange_strong(free, -1)) continue;
    line.name = {};
    line.endpoint = {};
    std::memcpy(line.name.data(), name.data(), std::min(name.size(), line.name.size() - 1));
    std::memcpy(line.endpoint.data(), endpoint.data(),
                std::min(endpoint.size(), line.endpoint.size() - 1));
    line.bytes = 0;
    line.pinned = 0;
    line.oldest_idle = 0;
    line.started = start_of_process(::getpid()).value_or(0);
    line.pid = ::getpid();
    std::uint64_t lines = page.lines;
    while (lines < i + 1 && !page.lines.compare_exchange_weak(lines, i + 1)) {
    }
    ledger->own_ = i;
    return ledger;
  }
  return fail(ErrorCode::resource_exhausted, "the node has {} processes with objects already",
              max_lines);
}

NodeLedger::~NodeLedger() {
  // What still lives is freed with the process; it does not count for the others any more.
  Line& line = page().all[own_];
  page().used -= line.bytes.exchange(0);
  line.pid = 0;
}

std::uint64_t NodeLedger::limit() const { return page().limit; }
std::uint64_t NodeLedger::used() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, page().used));
}

bool NodeLedger::charge(std::int64_t bytes) {
  Page& all = page();
  const auto now = all.used.fetch_add(bytes) + bytes;
  if (bytes > 0 && static_cast<std::uint64_t>(std::max<std::int64_t>(now, 0)) > all.limit) {
    all.used -= bytes;
    return false;
  }
  all.all[own_].bytes += bytes;
  return true;
}

bool NodeLedger::clear_ended() {
  Page& all = page();
  bool has_freed = false;
  for (std::size_t i = 0; i < all.lines; ++i) {
    Line& line = all.all[i];
    std::int32_t pid = line.pid;
    if (pid <= 0 || start_of_process(pid) == line.started) continue;
    if (!line.pid.compare_exchange_strong(pid, -1)) continue;
    const auto bytes = line.bytes.exchange(0);
    all.used -= bytes;
    has_freed = has_freed || bytes > 0;
    line.pid = 0;
  }
  return has_freed;
}

void NodeLedger::tell(std::optional<std::chrono::steady_clock::time_point> oldest_idle,
                      std::uint64_t pinned) {
  Line& line = page().all[own_];
  line.oldest_idle = oldest_idle ? oldest_idle->time_since_epoch().count() : 0;
  line.pinned = pinned;
}

std::optional<NodeLedger::Victim> NodeLedger::victim() const {
  Page& all = page();
  const Line* oldest = nullptr;
  for (std::size_t i = 0; i < all.lines; ++i) {
    const Line& line = all.all[i];
    if (i == own_ || line.pid <= 0 || line.oldest_idle == 0) continue;
    if (oldest == nullptr || line.oldest_idle < oldest->oldest_idle) oldest = &line;
  }
  if (oldest == nullptr) return std::nullopt;
  const std::chrono::steady_clock::duration since(oldest->oldest_idle.load());
  return Victim{text_of(oldest->endpoint), std::chrono::steady_clock::time_point(since)};
}

std::string NodeLedger::describe() const {
  Page& all = page();
  std::vector<const Line*> lines;
  for (std::size_t i = 0; i < all.lines; ++i) {
    if (all.all[i].pid > 0 && all.all[i].bytes > 0) lines.push_back(&all.all[i]);
  }
  std::ranges::sort(lines, [](const Line* a, const Line* b) { return a->bytes > b->bytes; });
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), 4); ++i) {
    text += fmt::format("{}{} holds {} bytes, of which {} are in use by views", i == 0 ? "" : "; ",
                        text_of(lines[i]->name), lines[i]->bytes.load(), lines[i]->pinned.load());
  }
  if (lines.size() > 4) text += fmt::format("; and {} more processes", lines.size() - 4);
  return text.empty() ? "nobody holds anything" : text;
}

}  // namespace troupe
