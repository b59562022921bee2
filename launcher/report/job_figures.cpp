#include "launcher/report/job_figures.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>

#include "launcher/report/write_file.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

Result<void> write_figures(const std::string& path, const std::string& version,
                           const JobIdentity& job, const JobFigures& figures) {
  Encoder encoder;
  encoder(version, job.id, job.created, figures);
  const Bytes bytes = encoder.take();
  return write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::optional<JobFigures> read_figures(const std::string& path, const std::string& version,
                                       const JobIdentity& job) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::string theirs;
  JobIdentity of;
  JobFigures figures;
  // The version comes first: other versions have another form after it.
  Decoder head(std::as_bytes(std::span(text)));
  head(theirs, of.id, of.created);
  if (theirs != version || of.id != job.id || of.created != job.created) return std::nullopt;
  Decoder whole(std::as_bytes(std::span(text)));
  whole(theirs, of.id, of.created, figures);
  return whole.finish().ok() ? std::optional(std::move(figures)) : std::nullopt;
}

}  // namespace troupe
