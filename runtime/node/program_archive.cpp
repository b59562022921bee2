#include "runtime/node/program_archive.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <string_view>

#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/process/child_process.hpp"
#include "runtime/security/sha256.hpp"

namespace troupe {
namespace {

/// Libraries that are the machine's own: those of C and C++, which fit its kernel and each other.
bool is_the_machines(std::string_view name) {
  constexpr std::array own{"ld-linux",     "libc.so",    "libm.so",      "libdl.so",
                           "librt.so",     "libpthread", "libresolv.so", "libgcc_s.so",
                           "libstdc++.so", "linux-vdso", "libasan.so",   "libubsan.so",
                           "libtsan.so",   "libnss_",    "libnvidia",    "libcuda.so"};
  return std::ranges::any_of(own, [&](const char* begin) { return name.starts_with(begin); });
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view path = info->dlpi_name;
        const std::string_view name = path.substr(path.rfind('/') + 1);
        if (path.starts_with('/') && !is_the_machines(name)) {
          static_cast<std::vector<std::string>*>(out)->emplace_back(path);
        }
        return 0;
      },
      &paths);
  return paths;
}

}  // namespace

Result<std::string> mark_of_files(const std::vector<std::string>& names) {
  TROUPE_TRY(const std::filesystem::path program, own_program());
  std::string stamps;
  for (const std::string& name : names) {
    struct stat file{};
    if (::stat((program.parent_path() / name).c_str(), &file) != 0) continue;
    stamps +=
        fmt::format("{} {} {}.{}\n", name, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }
  if (stamps.empty()) return stamps;
  Sha256 digest;
  digest.add(std::as_bytes(std::span(stamps)));
  return digest.hex().substr(0, 16);
}

Result<ProgramArchive> ProgramArchive::make(const std::vector<std::string>& beside) {
  TROUPE_TRY(const std::filesystem::path program, own_program());
  const std::filesystem::path folder = program.parent_path();
  // Names without a folder go to bin/, the others to lib/troupe/.
  std::vector<std::string> arguments{
      "tar",
      "--create",
      "--file=-",
      "--dereference",
      "--owner=0",
      "--group=0",
      "--numeric-owner",
      "--transform=s,^.*/\\([^/]*\\)$,lib/troupe/\\1,;s,^[^/]*$,bin/&,",
      "--directory=" + folder.string(),
      program.filename().string()};
  std::vector<std::string> libraries = loaded_libraries();
  for (const std::string& name : beside) {
    if (!std::filesystem::exists(folder / name)) continue;
    arguments.push_back(name);
    // It may be loaded already; it is found beside the program.
    std::erase(libraries, (folder / name).string());
  }
  arguments.emplace_back("--directory=/");
  for (const std::string& path : libraries) arguments.push_back(path.substr(1));
  UniqueFd file(::memfd_create("program-archive", MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "cannot make memory for a copy of the program");
  TROUPE_TRY(auto tar, ChildProcess::start({.arguments = std::move(arguments),
                                            .output_path = {},
                                            .program = "tar",
                                            .stdout_fd = file.get()}));
  constexpr std::chrono::seconds limit{60};
  const auto ended = tar.wait(limit);
  if (!ended || ended->signalled || ended->code != 0) {
    return fail(ErrorCode::io, "tar cannot pack {}: it {}", program.string(),
                ended ? ended->describe() : "takes more than a minute");
  }
  ProgramArchive archive(program.filename().string(), std::move(file));
  TROUPE_CHECK(archive.measure());
  return archive;
}

Result<void> ProgramArchive::measure() {
  Sha256 digest;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  while (true) {
    TROUPE_TRY(const std::size_t size, read(bytes_, buffer.data(), buffer.size()));
    if (size == 0) break;
    digest.add(std::span(buffer).first(size));
    bytes_ += size;
  }
  sha256_ = digest.hex();
  return {};
}

Result<std::size_t> ProgramArchive::read(std::size_t offset, std::byte* to,
                                         std::size_t size) const {
  const ssize_t got = ::pread(file_.get(), to, size, static_cast<off_t>(offset));
  if (got < 0) return fail_errno(errno, "cannot read the copy of the program");
  return static_cast<std::size_t>(got);
}

}  // namespace troupe
