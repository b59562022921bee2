#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "runtime/base/result.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/link/tls_session.hpp"
#include "runtime/object/object_id.hpp"
#include "runtime/process/unique_fd.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {

/// The bytes of an object that is sent: in memory or, of a spilled one, in a file.
struct DataSource {
  std::span<const std::byte> bytes;  ///< empty if it is in the file
  std::shared_ptr<UniqueFd> file;
  std::uint64_t size = 0;
  std::shared_ptr<const void> keep;
};

/// Objects are sent in pieces of so many bytes.
inline constexpr std::size_t data_piece = std::size_t{4} << 20;

/// Sends objects of this process to other machines: TLS 1.3 with a key of the pair, straight from
/// their segments. A thread for each connection, of which there are at most 64; later ones wait in
/// the kernel until one of these has ended.
class DataServer {
 public:
  using Find = std::function<std::optional<DataSource>(const ObjectId& object)>;
  static Result<std::unique_ptr<DataServer>> start(const std::string& address, PortRange ports,
                                                   const CallKeys& keys, Find find);
  ~DataServer();  ///< stops
  std::uint16_t port() const { return port_; }

 private:
  DataServer() = default;
  void run();
  void begin_to_serve(UniqueFd socket);
  void serve(int socket);

  std::unique_ptr<TlsContext> tls_;
  SecretKey listener_key_;
  Find find_;
  UniqueFd listener_, wake_;
  std::uint16_t port_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<int, UniqueFd> sockets_;  ///< each with a thread
  std::thread thread_;
};

/// Where a DataServer is.
struct DataPlace {
  std::string name;  ///< the process's on the call plane
  std::string address;
  std::uint16_t port = 0;
};

/// Fills `target` with the object, over as many connections as pay and the server has a turn for.
/// False if it has none at all within `patience`: it is busy, or stopped. `key` is the pair's on
/// the call plane (CallKeys::ask). Blocks. Errors: not_found if the server does not have it;
/// peer_died, permission_denied; timed_out if nothing comes for `patience`; cancelled once
/// `is_cancelled`.
Result<bool> pull_object(const DataPlace& from, const std::string& own_name, const Key& key,
                         const ObjectId& object, std::span<std::byte> target,
                         std::chrono::milliseconds patience, const std::atomic<bool>& is_cancelled);

}  // namespace troupe
