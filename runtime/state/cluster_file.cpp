#include "runtime/state/cluster_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/write_all.hpp"
#include "runtime/node/key_text.hpp"
#include "runtime/node/node_name.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

constexpr std::string_view magic = "troupe-cluster 1\n";
constexpr std::string_view suffix = ".cluster";
/// A file that is being written; what a killed driver leaves of it is removed after an hour.
constexpr std::string_view unfinished_suffix = ".unfinished";
constexpr std::time_t unfinished_seconds = 3600;
constexpr std::size_t max_bytes = std::size_t{16} << 10;

std::string on_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// Takes the text up to `end` off the front; all of it if that is not there.
std::string_view take_until(std::string_view& text, char end) {
  const auto at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return taken;
}

bool read_value(std::string_view word, std::string_view value, ClusterFile& file) {
  const auto text = [&](std::string& member) { return member = value, true; };
  if (word == "protocol") return read_number(value, file.protocol);
  if (word == "name") return text(file.name);
  if (word == "id") return text(file.id);
  if (word == "program") return text(file.program);
  if (word == "host") return text(file.host);
  if (word == "machine") return text(file.driver.machine);
  if (word == "boot") return text(file.driver.boot);
  if (word == "namespaces") return text(file.driver.namespaces);
  if (word == "pid") return read_number(value, file.driver.pid);
  if (word == "started") return read_number(value, file.driver.started);
  if (word == "since") return read_number(value, file.since_ms);
  if (word == "address") return text(file.address);
  if (word == "port") return read_number(value, file.port);
  if (word == "key") return read_key(value, file.key.bytes);
  return true;
}

/// Opens the folder, which must be this user's and closed to others.
Result<UniqueFd> open_folder(const std::string& path) {
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder && errno == ENOENT) return fail(ErrorCode::not_found, "there is no {}", path);
  if (!folder) return fail_errno(errno, "cannot open the folder " + path);
  struct stat info{};
  if (::fstat(folder.get(), &info) != 0) return fail_errno(errno, "cannot look at " + path);
  if (info.st_uid != ::geteuid()) {
    return fail(ErrorCode::permission_denied, "the folder {} belongs to another user (uid {})",
                path, info.st_uid);
  }
  if ((info.st_mode & 077) == 0) return folder;
  return fail(ErrorCode::permission_denied,
              "others can look into the folder {} (mode {:03o}): chmod 700 it", path,
              info.st_mode & 0777);
}

Result<UniqueFd> make_folder(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error)
    return fail(ErrorCode::io, "cannot make the folder {}: {}", parent.string(), error.message());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno(errno, "cannot make the folder " + path);
  }
  return open_folder(path);
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  DIR* listing = ::fdopendir(::dup(folder));
  if (listing == nullptr) return names;
  ::rewinddir(listing);
  while (const dirent* entry = ::readdir(listing)) names.emplace_back(entry->d_name);
  ::closedir(listing);
  std::ranges::sort(names);
  return names;
}

/// Reads one file of the folder; not_found if it has gone meanwhile.
Result<ClusterFile> read_file(int folder, const std::string& name) {
  const UniqueFd file(
      ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && (errno == ENOENT || errno == ESTALE))
    return fail(ErrorCode::not_found, "it is gone");
  if (!file) return fail_errno(errno, "cannot be opened");
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return fail_errno(errno, "cannot be looked at");
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::corrupt_data, "is no regular file");
  if (info.st_uid != ::geteuid()) {
    return fail(ErrorCode::permission_denied, "belongs to another user (uid {})", info.st_uid);
  }
  if ((info.st_mode & 077) != 0) {
    return fail(ErrorCode::permission_denied, "can be read or written by others (mode {:03o})",
                info.st_mode & 0777);
  }
  std::string text(max_bytes, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) return fail_errno(errno, "cannot be read");
  auto parsed =
      ClusterFile::parse(std::string_view(text).substr(0, static_cast<std::size_t>(count)));
  wipe(std::as_writable_bytes(std::span(text)));
  return parsed;
}

/// Removes what a driver left that was killed while it wrote.
void remove_unfinished(int folder, const std::string& name) {
  struct stat info{};
  if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (std::time(nullptr) - info.st_mtime > unfinished_seconds) ::unlinkat(folder, name.c_str(), 0);
}

/// The clusters whose files' names begin with `prefix`.
FoundClusters look(int folder, const std::string& path, std::string_view prefix) {
  FoundClusters found;
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with(unfinished_suffix)) remove_unfinished(folder, name);
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const std::string full = fmt::format("{}/{}", path, name);
    auto file = read_file(folder, name);
    if (!file.ok()) {
      if (file.error().code == ErrorCode::not_found) continue;
      found.problems.push_back(fmt::format("{} {}", full, file.error().message));
      continue;
    }
    const auto ended = has_ended(file->driver);
    if (ended.value_or(false)) {
      ::unlinkat(folder, name.c_str(), 0);
      found.ended.push_back(*std::move(file));
      continue;
    }
    found.clusters.push_back({full, *std::move(file), ended.has_value()});
  }
  return found;
}

Result<void> write_file(int folder, const std::string& name, const ClusterFile& file) {
  const std::string unfinished = name + std::string(unfinished_suffix);
  const UniqueFd out(::openat(folder, unfinished.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!out) return fail_errno(errno, "cannot make it");
  std::string text = file.text();
  auto written = write_all(out.get(), std::as_bytes(std::span(text)), "cannot write it");
  wipe(std::as_writable_bytes(std::span(text)));
  if (written.ok() && ::renameat(folder, unfinished.c_str(), folder, name.c_str()) != 0) {
    written = fail_errno(errno, "cannot rename it");
  }
  if (!written.ok()) ::unlinkat(folder, unfinished.c_str(), 0);
  return written;
}

std::string prefix_of(const std::string& host) { return node_name_of(host) + "-"; }

}  // namespace

std::string ClusterFile::text() const {
  std::string text(magic);
  text.reserve(2048);  // avoids reallocation, which would leave copies of the key in memory
  const auto line = [&](std::string_view word, const auto& value) {
    fmt::format_to(std::back_inserter(text), "{} {}\n", word, value);
  };
  line("protocol", protocol);
  line("name", on_one_line(name));
  line("id", on_one_line(id));
  line("program", on_one_line(program));
  line("host", on_one_line(host));
  line("machine", on_one_line(driver.machine));
  line("boot", on_one_line(driver.boot));
  line("namespaces", on_one_line(driver.namespaces));
  line("pid", driver.pid);
  line("started", driver.started);
  line("since", since_ms);
  line("address", on_one_line(address));
  line("port", port);
  line("key", to_hex(key.bytes));
  return text;
}

Result<ClusterFile> ClusterFile::parse(std::string_view text) {
  if (!text.starts_with(magic) || !text.ends_with('\n')) {
    return fail(ErrorCode::corrupt_data, "is no file of a cluster, or not of this version");
  }
  text.remove_prefix(magic.size());
  ClusterFile file;
  bool has_key = false;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const std::string_view word = take_until(line, ' ');
    if (!read_value(word, line, file)) {
      return fail(ErrorCode::corrupt_data, "has no valid {}", on_one_line(std::string(word)));
    }
    has_key |= word == "key";
  }
  if (!has_key || file.port == 0 || file.address.empty() || file.driver.pid <= 0) {
    return fail(ErrorCode::corrupt_data, "lacks the driver's address, port, pid or key");
  }
  return file;
}

std::string ClusterFile::file_name() const {
  return fmt::format("{}{}-{}{}", prefix_of(host), driver.pid, node_name_of(id), suffix);
}

Result<std::string> cluster_folder() {
  constexpr std::string_view in_state = "troupe/clusters";
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return fmt::format("{}/{}", state, in_state);
  }
  const char* home = std::getenv("HOME");
  std::string from_passwd;
  if (home == nullptr || *home != '/') {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 4096> buffer{};
    ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
    if (found != nullptr && entry.pw_dir != nullptr) from_passwd = entry.pw_dir;
    if (!from_passwd.starts_with('/')) {
      return fail(ErrorCode::not_found, "this user has no home: set HOME or XDG_STATE_HOME");
    }
    home = from_passwd.c_str();
  }
  return fmt::format("{}/.local/state/{}", home, in_state);
}

Result<PublishedCluster> PublishedCluster::publish(const std::string& folder,
                                                   const ClusterFile& file) {
  TROUPE_TRY(const UniqueFd opened, make_folder(folder));
  (void)look(opened.get(), folder, prefix_of(file.host));
  const std::string path = fmt::format("{}/{}", folder, file.file_name());
  if (auto written = write_file(opened.get(), file.file_name(), file); !written.ok()) {
    return fail(ErrorCode::io, "{}: {}", path, written.error().message);
  }
  return PublishedCluster(path);
}

PublishedCluster::~PublishedCluster() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<FoundClusters> find_clusters(const std::string& folder) {
  const auto opened = open_folder(folder);
  if (!opened.ok() && opened.error().code == ErrorCode::not_found) return FoundClusters{};
  if (!opened.ok()) return opened.error();
  auto found = look(opened->get(), folder, "");
  std::ranges::stable_sort(found.clusters, {},
                           [](const FoundCluster& cluster) { return cluster.file.since_ms; });
  return found;
}

}  // namespace troupe
