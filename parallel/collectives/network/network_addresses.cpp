#include "parallel/collectives/network/network_addresses.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace troupe {

namespace {

constexpr std::uint64_t magic = 0x32'74'65'6e'67'70'72'74;  // "trpgnet2"
constexpr std::uint64_t max_ranks = 1u << 16;

void put(std::string& out, std::uint64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Takes numbers and strings off the front of `rest`; none once one is missing.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  std::optional<std::uint64_t> number() {
    std::uint64_t value = 0;
    if (rest_.size() < sizeof(value)) return std::nullopt;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
    return value;
  }
  std::optional<std::string> text() {
    const auto bytes = number();
    if (!bytes || *bytes > rest_.size()) return std::nullopt;
    std::string value(rest_.substr(0, *bytes));
    rest_.remove_prefix(*bytes);
    return value;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::optional<NetworkAddresses> decode(const std::string& encoded) {
  Reader reader(encoded);
  const auto found_magic = reader.number();
  const auto rank = reader.number();
  const auto size = reader.number();
  const auto room = reader.number();
  const auto port = reader.number();
  auto host = reader.text();
  if (found_magic != magic || !rank || !size || !room || !port || !host || !reader.at_end() ||
      *rank >= *size || *size > max_ranks || *port > 0xffff) {
    return std::nullopt;
  }
  return NetworkAddresses{static_cast<int>(*rank), static_cast<int>(*size), *room, std::move(*host),
                          static_cast<std::uint16_t>(*port)};
}

}  // namespace

std::string encode(const NetworkAddresses& addresses) {
  std::string out;
  put(out, magic);
  put(out, static_cast<std::uint64_t>(addresses.rank));
  put(out, static_cast<std::uint64_t>(addresses.size));
  put(out, addresses.room);
  put(out, addresses.port);
  put(out, addresses.host.size());
  out += addresses.host;
  return out;
}

Result<std::vector<NetworkAddresses>> decode_group(std::span<const std::string> encoded,
                                                   std::size_t room) {
  std::vector<NetworkAddresses> group;
  for (std::size_t r = 0; r < encoded.size(); ++r) {
    auto addresses = decode(encoded[r]);
    if (!addresses) {
      return fail(ErrorCode::corrupt_data, "collectives: what rank {} announced is no address", r);
    }
    if (addresses->rank != static_cast<int>(r) ||
        static_cast<std::size_t>(addresses->size) != encoded.size()) {
      return fail(ErrorCode::invalid_argument,
                  "collectives: expected the addresses of rank {} of {}, found rank {} of {}", r,
                  encoded.size(), addresses->rank, addresses->size);
    }
    if (addresses->room != room) {
      return fail(ErrorCode::invalid_argument,
                  "collectives: rank {} has {} bytes of room for each other rank, this one {}", r,
                  addresses->room, room);
    }
    group.push_back(std::move(*addresses));
  }
  return group;
}

}  // namespace troupe
