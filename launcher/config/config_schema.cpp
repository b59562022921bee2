#include "launcher/config/config_schema.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include <fmt/format.h>

namespace troupe {
namespace {

std::string quoted_if_needed(std::string_view text) {
  const bool plain = !text.empty() && text.front() != '-' && text.front() != '.' &&
                     std::all_of(text.begin(), text.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
                     });
  const bool path = text.starts_with("./") || text.starts_with("../");
  if (plain || (path && text.find_first_of(" \t\n\"\\:#{}[],&*!|>'%@`") == text.npos)) {
    return std::string(text);
  }
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

void assign(std::string& target, const ConfigValue& value) { target = value.text; }
void assign(std::int64_t& target, const ConfigValue& value) { target = value.integer; }
void assign(double& target, const ConfigValue& value) { target = value.number; }
void assign(bool& target, const ConfigValue& value) { target = value.boolean; }
void assign(std::vector<std::string>& target, const ConfigValue& value) { target = value.list; }
template <class T>
void assign(std::optional<T>& target, const ConfigValue& value) {
  if (value.automatic) return target.reset();
  assign(target.emplace(), value);
}

std::string write(const std::string& value) { return quoted_if_needed(value); }
std::string write(std::int64_t value) { return fmt::format("{}", value); }
std::string write(double value) { return fmt::format("{}", value); }
std::string write(bool value) { return value ? "true" : "false"; }
std::string write(const std::vector<std::string>& values) {
  std::string result;
  for (const auto& value : values) {
    result += (result.empty() ? "" : ", ") + quoted_if_needed(value);
  }
  return "[" + result + "]";
}
template <class T>
std::string write(const std::optional<T>& value) {
  return value ? write(*value) : "auto";
}

/// Completes a row for the member of Config that the chain of member pointers leads to.
template <auto... Path>
KeySpec row(KeySpec spec) {
  spec.set = [](Config& config, const ConfigValue& value) { assign((config.*....*Path), value); };
  spec.get = [](const Config& config) { return write((config.*....*Path)); };
  return spec;
}

using C = Config;
constexpr double largest_size = 1 << 20;

std::vector<KeySpec> job_wide_rows() {
  constexpr auto text = ValueType::text;
  return {
      row<&C::name>({.key = "name",
                     .type = text,
                     .default_value = "batch",
                     .doc = "what the job is called in messages and answer ids"}),
      row<&C::model, &C::Model::path>(
          {.key = "model.path",
           .type = text,
           .default_value = "",
           .doc = "a Hugging Face folder: config.json, safetensors, tokenizer.json"}),
      row<&C::model, &C::Model::served_model_name>(
          {.key = "model.served_model_name",
           .type = ValueType::text_list,
           .default_value = "",
           .doc = "the names requests may use for it; default: the folder's name"}),
      row<&C::model, &C::Model::dtype>({.key = "model.dtype",
                                        .type = text,
                                        .default_value = "auto",
                                        .doc = "what weights are computed in; auto: float32 on CPU",
                                        .choices = {"auto", "float32", "bfloat16", "float16"},
                                        .this_version = {"auto", "float32", "bfloat16"}}),
      row<&C::model, &C::Model::load_format>({.key = "model.load_format",
                                              .type = text,
                                              .default_value = "auto",
                                              .doc = "where weights come from; auto: safetensors",
                                              .choices = {"auto", "safetensors", "dummy"}}),
      row<&C::cluster, &C::Cluster::launch>(
          {.key = "cluster.launch",
           .type = text,
           .default_value = "local",
           .doc = "how nodes are started: on this machine, by ssh, or by Slurm",
           .choices = {"local", "ssh", "slurm"},
           .this_version = {"local"}}),
      row<&C::cluster, &C::Cluster::hosts>(
          {.key = "cluster.hosts",
           .type = ValueType::text_list,
           .default_value = "[]",
           .doc = "the machines that ssh reaches: gpu01, user@gpu02:2222, ...",
           .this_version = {"[]"}}),
      row<&C::cluster, &C::Cluster::devices_per_node>(
          {.key = "cluster.devices_per_node",
           .type = ValueType::integer,
           .default_value = "auto",
           .doc = "workers a node takes; auto: as many as the parallel sizes need",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1024}),
      row<&C::cluster, &C::Cluster::network>({.key = "cluster.network",
                                              .type = text,
                                              .default_value = "auto",
                                              .doc = "the interface or subnet that nodes talk over",
                                              .this_version = {"auto"}}),
      row<&C::job, &C::Job::input>(
          {.key = "job.input",
           .type = text,
           .default_value = "",
           .doc = "the requests, OpenAI batch format (JSON lines); also --input"}),
      row<&C::job, &C::Job::output>(
          {.key = "job.output",
           .type = text,
           .default_value = "",
           .doc = "where the answers go, in the order they finish; also --output"}),
      row<&C::job, &C::Job::resume>(
          {.key = "job.resume",
           .type = text,
           .default_value = "auto",
           .doc = "whether an output that has answers is gone on with; also --resume",
           .choices = {"auto", "never", "force"}}),
      row<&C::job, &C::Job::grace_seconds>(
          {.key = "job.grace_seconds",
           .type = ValueType::number,
           .default_value = "30",
           .doc = "after a signal, how long requests that run may take to finish",
           .minimum = 0,
           .maximum = 86400}),
      row<&C::job, &C::Job::max_failures>(
          {.key = "job.max_failures",
           .type = ValueType::integer,
           .default_value = "auto",
           .doc = "with more error lines than these the job stops; auto: it never does",
           .allows_auto = true,
           .minimum = 0,
           .maximum = 9007199254740991.0}),
      row<&C::job, &C::Job::seed>({.key = "job.seed",
                                   .type = ValueType::integer,
                                   .default_value = "0",
                                   .doc = "with the custom_id, the seed of requests that name none",
                                   .minimum = 0,
                                   .maximum = 9007199254740991.0}),
  };
}

std::vector<KeySpec> parallel_rows() {
  constexpr auto integer = ValueType::integer;
  using P = C::Parallel;
  return {
      row<&C::parallel, &P::tensor_parallel_size>(
          {.key = "parallel.tensor_parallel_size",
           .type = integer,
           .default_value = "1",
           .doc = "workers that share each layer's matrices",
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::pipeline_parallel_size>({.key = "parallel.pipeline_parallel_size",
                                                     .type = integer,
                                                     .default_value = "1",
                                                     .doc = "stages the layers are cut into",
                                                     .minimum = 1,
                                                     .maximum = 1024}),
      row<&C::parallel, &P::data_parallel_size>({.key = "parallel.data_parallel_size",
                                                 .type = integer,
                                                 .default_value = "1",
                                                 .doc = "replicas of the model",
                                                 .minimum = 1,
                                                 .maximum = 1024}),
      row<&C::parallel, &P::context_parallel_size>({.key = "parallel.context_parallel_size",
                                                    .type = integer,
                                                    .default_value = "1",
                                                    .doc = "workers that share one long prompt",
                                                    .minimum = 1,
                                                    .maximum = 1024,
                                                    .this_version = {"1"}}),
      row<&C::parallel, &P::sequence_parallel>({.key = "parallel.sequence_parallel",
                                                .type = ValueType::boolean,
                                                .default_value = "false",
                                                .doc = "norms and residuals split over tokens"}),
      row<&C::parallel, &P::expert_parallel_size>(
          {.key = "parallel.expert_parallel_size",
           .type = integer,
           .default_value = "auto",
           .doc = "workers that whole experts are dealt to; auto: the tensor ranks",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::collectives>(
          {.key = "parallel.collectives",
           .type = ValueType::text,
           .default_value = "auto",
           .doc = "what carries tensors between workers; auto: shared memory",
           .choices = {"auto", "shm", "gloo", "nccl"},
           .this_version = {"auto", "shm", "gloo"}}),
      row<&C::parallel, &P::placement>(
          {.key = "parallel.placement",
           .type = ValueType::text,
           .default_value = "pack",
           .doc = "how workers are laid out over nodes",
           .choices = {"pack", "spread", "strict_pack", "strict_spread"},
           .this_version = {"pack"}}),
  };
}

std::vector<KeySpec> engine_rows() {
  constexpr auto integer = ValueType::integer;
  constexpr auto boolean = ValueType::boolean;
  using E = C::Engine;
  return {
      row<&C::engine, &E::max_model_len>(
          {.key = "engine.max_model_len",
           .type = integer,
           .default_value = "auto",
           .doc =
               "the most tokens of prompt and answer together; auto: what the model was made for",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1 << 30}),
      row<&C::engine, &E::max_num_seqs>({.key = "engine.max_num_seqs",
                                         .type = integer,
                                         .default_value = "256",
                                         .doc = "the most requests in one step",
                                         .minimum = 1,
                                         .maximum = 65536}),
      row<&C::engine, &E::max_num_batched_tokens>({.key = "engine.max_num_batched_tokens",
                                                   .type = integer,
                                                   .default_value = "auto",
                                                   .doc = "the most tokens in one step; auto: 2048",
                                                   .allows_auto = true,
                                                   .minimum = 1,
                                                   .maximum = largest_size}),
      row<&C::engine, &E::block_size>({.key = "engine.block_size",
                                       .type = integer,
                                       .default_value = "16",
                                       .doc = "tokens in a block of the KV cache",
                                       .choices = {"8", "16", "32", "64", "128"},
                                       .this_version = {"16", "32", "64", "128"}}),
      row<&C::engine, &E::kv_cache_blocks>(
          {.key = "engine.kv_cache_blocks",
           .type = integer,
           .default_value = "auto",
           .doc = "blocks of the KV cache; auto: from the memory there is",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1 << 30}),
      row<&C::engine, &E::gpu_memory_utilization>(
          {.key = "engine.gpu_memory_utilization",
           .type = ValueType::number,
           .default_value = "0.92",
           .doc = "the share of a GPU's memory to use; no effect on CPU",
           .minimum = 0.01,
           .maximum = 1}),
      row<&C::engine, &E::enable_prefix_caching>(
          {.key = "engine.enable_prefix_caching",
           .type = boolean,
           .default_value = "true",
           .doc = "prompts that begin alike share their KV blocks"}),
      row<&C::engine, &E::enable_chunked_prefill>(
          {.key = "engine.enable_chunked_prefill",
           .type = boolean,
           .default_value = "true",
           .doc = "a long prompt is read over several steps"}),
      row<&C::engine, &E::async_scheduling>(
          {.key = "engine.async_scheduling",
           .type = boolean,
           .default_value = "true",
           .doc = "a step is planned while the one before it runs"}),
      row<&C::engine, &E::scheduling_policy>({.key = "engine.scheduling_policy",
                                              .type = ValueType::text,
                                              .default_value = "fcfs",
                                              .doc = "who is served first",
                                              .choices = {"fcfs", "priority", "sjf", "deadline"}}),
      row<&C::engine, &E::speculative_method>(
          {.key = "engine.speculative_method",
           .type = ValueType::text,
           .default_value = "none",
           .doc = "how next tokens are guessed, so that a step may bring several",
           .choices = {"none", "ngram", "draft_model"}}),
      row<&C::engine, &E::speculative_model>({.key = "engine.speculative_model",
                                              .type = ValueType::text,
                                              .default_value = "none",
                                              .doc = "of draft_model: the folder of that model"}),
      row<&C::engine, &E::num_speculative_tokens>({.key = "engine.num_speculative_tokens",
                                                   .type = integer,
                                                   .default_value = "3",
                                                   .doc = "tokens guessed in a step at most",
                                                   .minimum = 1,
                                                   .maximum = 16}),
      row<&C::engine, &E::prompt_lookup_max>(
          {.key = "engine.prompt_lookup_max",
           .type = integer,
           .default_value = "3",
           .doc = "of ngram: how many last tokens are looked for in what came before",
           .minimum = 1,
           .maximum = 64}),
      row<&C::engine, &E::threads_per_worker>(
          {.key = "engine.threads_per_worker",
           .type = integer,
           .default_value = "auto",
           .doc = "CPU threads of a worker; auto: cores / workers, at least 1",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1024}),
      row<&C::engine, &E::deterministic>(
          {.key = "engine.deterministic",
           .type = boolean,
           .default_value = "auto",
           .doc = "the same bytes whoever shares the batch; on CPU always",
           .allows_auto = true,
           .this_version = {"auto", "true"}}),
  };
}

}  // namespace

std::string_view to_string(ValueType type) {
  switch (type) {
    case ValueType::text:
      return "text";
    case ValueType::integer:
      return "an integer";
    case ValueType::number:
      return "a number";
    case ValueType::boolean:
      return "true or false";
    case ValueType::text_list:
      return "a list of texts";
  }
  return "a value";
}

std::span<const KeySpec> config_schema() {
  static const std::vector<KeySpec> schema = [] {
    std::vector<KeySpec> rows = job_wide_rows();
    const auto job = std::find_if(rows.begin(), rows.end(),
                                  [](const KeySpec& spec) { return spec.key == "job.input"; });
    std::vector<KeySpec> middle = parallel_rows();
    for (KeySpec& spec : engine_rows()) middle.push_back(std::move(spec));
    rows.insert(job, middle.begin(), middle.end());
    return rows;
  }();
  return schema;
}

std::span<const std::string_view> later_config_keys() {
  static constexpr std::array<std::string_view, 3> keys = {"cluster.elastic", "metrics", "slo"};
  return keys;
}

const KeySpec* find_key(std::string_view key) {
  for (const KeySpec& spec : config_schema()) {
    if (spec.key == key) return &spec;
  }
  return nullptr;
}

}  // namespace troupe
