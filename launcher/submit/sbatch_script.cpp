#include "launcher/submit/sbatch_script.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/process/shell_word.hpp"

namespace troupe {
namespace {

/// After the drained requests the launcher still gathers logs and writes its report.
constexpr double seconds_after_grace = 60;
constexpr double longest_notice = 65535;  ///< that sbatch's --signal takes

constexpr std::string_view before_start = R"sh(
# Answers so far, in bytes.
size() { stat -c %s "$output" 2>/dev/null || echo 0; }
before=$(size)

limit_is_near=no
trap 'limit_is_near=yes; kill -USR1 $launcher 2>/dev/null' USR1
trap 'kill -TERM $launcher 2>/dev/null' TERM
)sh";

constexpr std::string_view after_start = R"sh( &
launcher=$!
while kill -0 $launcher 2>/dev/null; do wait $launcher; done
wait $launcher
code=$?

# 4: drained; 137: the launcher was killed, as by the kernel when memory has run out. If this run got
# any further, the next one goes on from there. Slurm ends this script then; one that ended by itself
# meanwhile could count as a failure of the next run.
goes_on=no
[ $code -eq 4 ] && goes_on=$limit_is_near
[ $code -eq 137 ] && goes_on=yes
if [ $goes_on = yes ] && [ "$(size)" -gt "$before" ]; then
  scontrol requeue "$SLURM_JOB_ID" && exec sleep 300
fi
exit $code
)sh";

/// A path in a name in which sbatch replaces %j and the like.
std::string without_patterns(const std::string& path) {
  std::string escaped;
  for (const char c : path) escaped += c == '%' ? std::string("%%") : std::string(1, c);
  return escaped;
}

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) {
    if (!text.empty()) text += ' ';
    text += shell_word(word);
  }
  return text;
}

}  // namespace

ShardName name_of_shards(const std::string& output, int count) {
  const std::filesystem::path path(output);
  const std::string name = path.filename().string();
  const auto dot = name.find('.', 1);  // before all endings: answers.jsonl.gz
  return {(path.parent_path() / (name.substr(0, dot) + "-")).string(),
          fmt::format("-of-{:05}", count) + (dot == name.npos ? "" : name.substr(dot))};
}

std::string log_of(const SbatchJob& job, const std::string& id) {
  return fmt::format("{}.slurm-{}.log", job.output, id);
}

std::string sbatch_script(const SbatchJob& job) {
  std::string script = "#!/bin/bash\n# Written by `launcher submit`.\n";
  const auto option = [&](const std::string& text) { script += "#SBATCH " + text + "\n"; };
  const auto word = [](std::string_view name, const std::string& value) {
    return fmt::format("--{}={}", name, shell_word(value));
  };
  option(word("job-name", job.name));
  SbatchJob named = job;
  named.output = without_patterns(job.output);
  option(word("output", log_of(named, job.array > 0 ? "%A_%a" : "%j")));
  option("--open-mode=append");
  option("--requeue");
  option(fmt::format("--signal=B:USR1@{}",
                     static_cast<int>(std::min(
                         longest_notice, std::ceil(job.grace_seconds + seconds_after_grace)))));
  option(word("comment", fmt::format("troupe: {} -> {}", job.input, job.output)));
  if (job.array > 0) option(fmt::format("--array=0-{}", job.array - 1));
  if (!job.sbatch.empty()) option(words(job.sbatch));

  std::vector<std::string> command = {job.launcher, "run"};
  command.insert(command.end(), job.arguments.begin(), job.arguments.end());
  std::string started = words(command) + " --output \"$output\"";
  script += fmt::format("\ncd {} || exit 2\n", shell_word(job.folder));
  if (job.array > 0) {
    const ShardName name = name_of_shards(job.output, job.array);
    script += "shard=$(printf %05d \"$SLURM_ARRAY_TASK_ID\")\n";
    script +=
        fmt::format("output={}\"$shard\"{}\n", shell_word(name.before), shell_word(name.after));
    started += fmt::format(
        " --set job.num_shards={} --set job.shard_index=\"$SLURM_ARRAY_TASK_ID\"", job.array);
  } else {
    script += fmt::format("output={}\n", shell_word(job.output));
  }
  return script.append(before_start).append(started).append(after_start);
}

}  // namespace troupe
