#include "launcher/config/host_port.hpp"

#include <charconv>

namespace troupe {

Result<HostPort> HostPort::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  HostPort parsed{std::string(host), 0};
  const std::string_view port = colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
  if (error != std::errc() || end != port.data() + port.size() || host.empty() ||
      (!has_brackets && host.find(':') != host.npos)) {
    return fail(ErrorCode::invalid_argument, "'{}' is not HOST:PORT", text);
  }
  return parsed;
}

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace troupe
