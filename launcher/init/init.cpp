#include "launcher/init/init.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/config/cluster_config.hpp"
#include "launcher/config/config_schema.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/mesh_table.hpp"
#include "runtime/base/format_bytes.hpp"
#include "runtime/node/slurm_node_starter.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t comment_column = 34;
constexpr const char* demo_model = "configs/demo/fable-moe";

/// The words as comment lines that begin with `indent` and '#'.
std::string comment(std::string_view indent, const std::string& text) {
  std::istringstream words(text);
  std::string result;
  std::string line = fmt::format("{}#", indent);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > columns) {
      result += line + "\n";
      line = fmt::format("{}#", indent);
    }
    line += " " + word;
  }
  return result + line + "\n";
}

/// "  key: value   # the key's doc in the schema", or the comment on its own line above if too
/// long.
std::string entry(std::string_view key, const std::string& value) {
  const KeySpec* spec = find_key(key);
  const auto dot = key.find('.');
  const std::string_view indent = dot == key.npos ? "" : "  ";
  std::string line = fmt::format("{}{}: {}", indent, key.substr(dot + 1), value);
  const std::string doc(spec == nullptr ? "" : spec->doc);
  const std::size_t gap = line.size() < comment_column ? comment_column - line.size() : 2;
  if (line.size() + gap + 2 + doc.size() > columns) return comment(indent, doc) + line + "\n";
  return fmt::format("{}{:{}}# {}\n", line, "", gap, doc);
}

std::string quoted(const std::string& text) {
  // A key of type text is written as YAML needs it.
  Config config;
  config.name = text;
  return value_of(*find_key("name"), config);
}

std::string introduction(const std::string& path, const ModelConfig& model,
                         std::uint64_t weight_bytes, const Machine& machine) {
  std::string text = "Written by launcher init for ";
  if (!machine.gpus.assumed) text += fmt::format("{} cores", machine.cores);
  if (machine.gpus.count > 0) {
    text += fmt::format("{}{} GPU{}", machine.gpus.assumed ? "" : " and ", machine.gpus.count,
                        machine.gpus.count == 1 ? "" : "s");
    if (machine.gpus.memory_bytes > 0) {
      text += fmt::format(" of {}", format_bytes(machine.gpus.memory_bytes));
    }
  } else if (machine.gpus.assumed) {
    text += "a machine without GPUs";
  }
  if (!machine.gpus.assumed && machine.free_memory_bytes > 0) {
    text += fmt::format(" with {} of free memory", format_bytes(machine.free_memory_bytes));
  }
  text += fmt::format(", and for {}: {}, {} layers", model_folder_name(path), model.architecture,
                      model.layers);
  if (model.moe) text += fmt::format(", {} experts", model.moe->experts);
  return text + fmt::format(", {} of weights.", format_bytes(weight_bytes));
}

Result<void> write_new_file(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd && errno == EEXIST) {
    return fail(ErrorCode::invalid_argument,
                "{} is there already and stays as it is; give another name with --output", path);
  }
  if (!fd) return fail_errno(errno, fmt::format("cannot write {}", path));
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  const int why = written < 0 ? errno : ENOSPC;
  ::unlink(path.c_str());
  return fail_errno(why, fmt::format("cannot write {}", path));
}

/// A model with more weights than this share of a host's memory is split over the hosts.
constexpr double host_share = 0.6;

std::string parallel_sizes(const Arrangement& arrangement, std::uint64_t weight_bytes,
                           const Machine& machine, const InitNodes& nodes) {
  const auto sizes = [](std::size_t data, int tensor, std::size_t stages) {
    return entry("parallel.data_parallel_size", fmt::format("{}", data)) +
           entry("parallel.tensor_parallel_size", fmt::format("{}", tensor)) +
           entry("parallel.pipeline_parallel_size", fmt::format("{}", stages));
  };
  if (nodes.launch.empty()) {
    return comment("  ", arrangement.reason) +
           sizes(static_cast<std::size_t>(arrangement.data), arrangement.tensor, 1);
  }
  const std::size_t count = nodes.hosts.size();
  const bool fits = machine.free_memory_bytes == 0 ||
                    static_cast<double>(weight_bytes) <=
                        host_share * static_cast<double>(machine.free_memory_bytes);
  if (fits) {
    return comment("  ", fmt::format("A replica on each of {} hosts.", count)) + sizes(count, 1, 1);
  }
  return comment("  ",
                 fmt::format("A stage on each of {} hosts, as {} of weights leave one of them "
                             "with the memory of this one too little.",
                             count, format_bytes(weight_bytes))) +
         sizes(1, 1, count);
}

std::string cluster_section(const Machine& machine, const InitNodes& nodes) {
  if (nodes.launch.empty()) {
    if (!machine.gpus.assumed || machine.gpus.count > 0) return "";
    return "\ncluster:\n" + entry("cluster.device", "cpu");
  }
  std::string text = "\ncluster:\n" + entry("cluster.launch", nodes.launch);
  if (nodes.launch == "ssh") {
    text += entry("cluster.hosts", fmt::format("[{}]", fmt::join(nodes.hosts, ", ")));
  }
  text += comment("  ",
                  "cuda: each worker has a GPU of its host. Then set cluster.devices_per_node and "
                  "the parallel sizes to the hosts' GPUs.");
  return text + entry("cluster.device", "cpu");
}

/// Returns the YAML for the model, tried out on the machine that it is meant for.
Result<std::string> make_config(const std::string& path, std::string_view file_name,
                                const std::optional<Gpus>& assumed_gpus, const InitNodes& nodes) {
  Machine machine = this_machine(assumed_gpus);
  if (!nodes.launch.empty()) machine.gpus = {};
  PlanOptions options;
  if (nodes.launch.empty()) options.assumed_gpus = machine.gpus;
  // A first plan, of one worker, shows the model's sizes or what is wrong with it.
  Config first;
  TROUPE_TRY(first, parse_config(fmt::format("model: {{path: {}}}", quoted(path)), file_name, {},
                                 Purpose::check));
  TROUPE_TRY(const JobPlan sizes, plan_job(std::move(first), options));
  const std::uint64_t weight_bytes = sizes.ranks.front().weight_bytes;
  const auto text_for = [&](const Arrangement& arrangement) {
    return starting_config(path, sizes.model, weight_bytes, machine, arrangement, nodes);
  };
  const auto plan_for = [&](const Arrangement& arrangement) -> Result<JobPlan> {
    TROUPE_TRY(Config config, parse_config(text_for(arrangement), file_name, {}, Purpose::check));
    return plan_job(std::move(config), options);
  };
  TROUPE_TRY(const Arrangement arrangement, arrange(machine, weight_bytes, plan_for));
  TROUPE_TRY(const JobPlan plan, plan_for(arrangement));
  TROUPE_CHECK(check_startable(plan));
  return text_for(arrangement);
}

Result<void> init(const InitOptions& options) {
  std::string model = options.model;
  std::error_code ignored;
  if (model.empty()) {
    if (!std::filesystem::exists(demo_model, ignored)) {
      return fail(
          ErrorCode::invalid_argument,
          "which model? Give --model FOLDER, a checkpoint with config.json and safetensors");
    }
    model = demo_model;
  }
  const bool to_stdout = options.output == "-";
  TROUPE_TRY(const std::string text, make_config(model, to_stdout ? "cluster.yaml" : options.output,
                                                 options.assumed_gpus, nodes_for(options)));
  if (to_stdout) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  TROUPE_CHECK(write_new_file(options.output, text));
  std::printf("wrote %s\nnext: launcher check --config %s\n", options.output.c_str(),
              options.output.c_str());
  return {};
}

}  // namespace

InitNodes nodes_for(const InitOptions& options) {
  if (!options.hosts.empty()) return {"ssh", options.hosts};
  auto allocated = slurm_nodes();
  if (!allocated.ok()) return {};
  return {"slurm", *std::move(allocated)};
}

std::string starting_config(const std::string& path, const ModelConfig& model,
                            std::uint64_t weight_bytes, const Machine& machine,
                            const Arrangement& arrangement, const InitNodes& nodes) {
  const std::string name = quoted(model_folder_name(path));
  std::string text = comment("", introduction(path, model, weight_bytes, machine));
  text +=
      "#\n"
      "#   launcher check --config FILE    what would run, and what it would take\n"
      "#   launcher --config FILE          run it\n"
      "#   launcher reference              every key, and what it means\n"
      "#\n"
      "# Paths count from the folder that the launcher is started in.\n"
      "\n";
  text += entry("name", name);
  text += "\nmodel:\n" + entry("model.path", quoted(path)) +
          entry("model.served_model_name", "[" + name + "]") + entry("model.dtype", "auto");
  text += cluster_section(machine, nodes);
  text += "\nparallel:\n" + parallel_sizes(arrangement, weight_bytes, machine, nodes);
  if (model.moe) text += entry("parallel.expert_parallel_size", "auto");
  text += "\nengine:\n" +
          entry("engine.max_model_len", fmt::format("{}", model.max_position_embeddings)) +
          entry("engine.max_num_seqs", "256") + entry("engine.kv_cache_blocks", "auto") +
          entry("engine.enable_prefix_caching", "true") +
          entry("engine.threads_per_worker", "auto");
  text += "\njob:\n" + entry("job.input", "requests.jsonl") + entry("job.output", "answers.jsonl") +
          entry("job.seed", "0");
  text += "\nmetrics:\n" + entry("metrics.port", "off");
  return text;
}

ExitCode run_init(const InitOptions& options) {
  const auto done = init(options);
  if (done.ok()) return ExitCode::all_answered;
  std::fprintf(stderr, "launcher: %s\n", done.error().message.c_str());
  return ExitCode::refused;
}

}  // namespace troupe
