#include "runtime/node/node_ticket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include "runtime/base/deadline.hpp"
#include "runtime/node/key_text.hpp"
#include "runtime/node/node_name.hpp"
#include "runtime/process/run_program.hpp"

namespace troupe {
namespace {

constexpr std::string_view magic = "troupe-ticket";
constexpr std::string_view version = "1";
constexpr std::size_t max_text_bytes = 8192;  // a credential is longer than a ticket
constexpr std::size_t max_name_bytes = 128;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

bool is_node_name(std::string_view name) {
  return !name.empty() && name.size() <= max_name_bytes &&
         std::ranges::all_of(name, may_be_in_node_name);
}

bool read_port(std::string_view text, std::uint16_t& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port != 0;
}

Result<NodeTicket> parse_line(std::string_view line) {
  if (!line.starts_with("MUNGE:")) return NodeTicket::parse(line);
  TROUPE_TRY(std::string text,
             run_program({"unmunge", "--metadata=/dev/null"}, line, std::chrono::seconds(10)));
  auto ticket = NodeTicket::parse(text);
  wipe(std::as_writable_bytes(std::span(text)));
  return ticket;
}

}  // namespace

std::string NodeTicket::text() const {
  return fmt::format("{} {} {} {} {} {}\n", magic, version, node, host, port, to_hex(key.bytes));
}

Result<NodeTicket> NodeTicket::parse(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const auto words = words_of(text);
  NodeTicket ticket;
  if (words.size() != 6 || words[0] != magic || words[1] != version || !is_node_name(words[2]) ||
      words[3].empty() || !read_port(words[4], ticket.port) ||
      !read_key(words[5], ticket.key.bytes)) {
    return fail(ErrorCode::invalid_argument,
                "this is not the ticket of a node ('{} {} NODE HOST "
                "PORT KEY'): it must come from a driver of this version",
                magic, version);
  }
  ticket.node = words[2];
  ticket.host = words[3];
  return ticket;
}

Result<NodeTicket> read_ticket(int fd, std::chrono::milliseconds timeout) {
  Deadline deadline = deadline_in(timeout);
  std::array<char, max_text_bytes> line{};
  for (std::size_t size = 0; size < line.size(); ++size) {
    pollfd readable{fd, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
    const int ready = ::poll(&readable, 1, static_cast<int>(left.count()));
    if (ready == 0) return fail(ErrorCode::timed_out, "the starter of this node sent no ticket");
    const ssize_t count = ready < 0 ? -1 : ::read(fd, &line[size], 1);
    if (count < 0 && errno == EINTR) {
      --size;
      continue;
    }
    if (count < 0) return fail_errno(errno, "cannot read the ticket of this node");
    if (count == 0) return fail(ErrorCode::peer_died, "the starter of this node has ended");
    if (line[size] != '\n') continue;
    auto ticket = parse_line({line.data(), size});
    wipe(std::as_writable_bytes(std::span(line)));
    return ticket;
  }
  return fail(ErrorCode::invalid_argument, "what the starter of this node sent is not a ticket");
}

}  // namespace troupe
