#pragma once

#include <string>
#include <vector>

namespace troupe {

/// The parts of a batch script for Slurm. Paths are absolute.
struct SbatchJob {
  std::string name;
  std::string folder;                  ///< where the launcher is started
  std::string launcher;                ///< the program
  std::vector<std::string> arguments;  ///< of `launcher run`, without the output
  std::string input;                   ///< for the job's comment
  std::string output;
  double grace_seconds = 0;         ///< job.grace_seconds
  int array = 0;                    ///< the number of shards of the input; 0: no job array
  std::vector<std::string> sbatch;  ///< the user's options of sbatch; they override the script's
};

/// Returns a bash script for sbatch. It starts the launcher, and hands it the signal that Slurm
/// sends before the time limit, so that it drains. If the drained job has got any further it is put
/// back into the queue, where the same script goes on with it. With an array each task has a shard
/// of the input and an output of its own (name_of_shards).
std::string sbatch_script(const SbatchJob& job);

/// The output of a shard is `before`, its index in five digits, `after`: for "answers.jsonl" and
/// four shards answers-00000-of-00004.jsonl and so on.
struct ShardName {
  std::string before;
  std::string after;
};
ShardName name_of_shards(const std::string& output, int count);

/// The log of a job, or of a task of an array. `id`: as squeue has it, or Slurm's pattern for it.
std::string log_of(const SbatchJob& job, const std::string& id);

}  // namespace troupe
