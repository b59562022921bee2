#include "launcher/cli/submit_options.hpp"

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {

std::string_view SubmitArguments::summary() const {
  return "Writes a batch script for Slurm that runs the job over the nodes it is given, and "
         "submits "
         "it with sbatch.";
}

std::string SubmitArguments::details() const {
  return R"(Examples:
  launcher submit --config c.yaml -- --nodes=4 --time=2:00:00
  launcher submit --config c.yaml --dry-run -- -N 2 > job.sh
  launcher submit --config c.yaml --array 8 -- --nodes=1 --gpus-per-node=8

What stands after "--" are sbatch's own options; they override those of the
script. The script is OUTPUT.sbatch, its log OUTPUT.slurm-JOB.log. Before
the time limit the job drains and, if it got any further, goes back into the
queue, as it does after the loss of a node; the next run goes on with the
answers that are there. Exit codes: 0 submitted; 2 refused.)";
}

void SubmitArguments::declare(CLI::App& app) {
  config_.declare(app);
  files_.declare(app);
  app.add_option("--array", array_,
                 "a job array of N tasks, each with every N-th line of the input and an output of "
                 "its own: answers-00000-of-0000N.jsonl")
      ->type_name("N")
      ->expected(1)
      ->check(integer_between(1, 99999));
  app.add_flag("--dry-run", dry_run_, "print the script on standard output; submit nothing");
  app.add_option("sbatch", sbatch_, "options of sbatch, after --")->type_name("-- OPTION...");
}

Result<SubmitOptions> SubmitArguments::judge() const {
  SubmitOptions options{.config = {}, .array = array_, .dry_run = dry_run_, .sbatch = sbatch_};
  TROUPE_TRY(options.config, config_.judge());
  TROUPE_CHECK(files_.add_to(options.config));
  return options;
}

}  // namespace troupe
