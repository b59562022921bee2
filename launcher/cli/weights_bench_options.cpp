#include "launcher/cli/weights_bench_options.hpp"

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {

std::string_view WeightsBenchArguments::summary() const {
  return "Reading a checkpoint into a device's memory, beside what bounds it.";
}

std::string WeightsBenchArguments::details() const {
  return R"(Reads the weights of the model into the memory of one device, as a worker of it
that is alone does, and tells how fast, beside what bounds it: a copy of
page-locked memory to the device, and a plain reading of the same files by as
many threads.)";
}

void WeightsBenchArguments::declare(CLI::App& app) {
  common_.declare(app);
  app.add_option("--make", options_.make_folder,
                 "first write a checkpoint of the model's shapes into FOLDER, with random numbers, "
                 "and read that: for a model of which there is only its config.json. Not a model's "
                 "own folder")
      ->type_name("FOLDER")
      ->expected(1);
  app.add_option("--repeat", options_.repeat, "how often they are read")
      ->type_name("N")
      ->check(integer_between(1, 1000))
      ->capture_default_str();
  app.add_flag("--cold", options_.cold, "drop the files from the page cache before each reading");
}

Result<WeightsBenchOptions> WeightsBenchArguments::judge() const {
  WeightsBenchOptions options = options_;
  TROUPE_TRY(static_cast<PartBenchOptions&>(options), common_.judge());
  return options;
}

}  // namespace troupe
