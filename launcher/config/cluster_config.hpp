#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The content of a cluster YAML, validated and with defaults filled in. One member per key, with
/// the YAML's names; an absent optional is `auto`, or `off`. The meaning of each key, its default
/// and its limits are in the table of config_schema.hpp, and nowhere else.
struct Config {
  struct Model {
    std::string path;
    /// Never empty; default: the folder's name. any_model_name, if given, comes last.
    std::vector<std::string> served_model_name;
    std::string dtype;
    std::string load_format;
    std::string quantization;
    std::optional<bool> quantize_lm_head = {};
    std::string stage;
    std::string stage_folder;
  };
  struct Cluster {
    std::string launch;
    std::vector<std::string> hosts;
    bool copy_program = true;
    std::string device;
    std::optional<std::int64_t> devices_per_node;
    std::string network;
    std::string listen;
    std::optional<std::int64_t> nodes;
    std::string token_file;
    double join_timeout = 0;
    bool elastic = false;
    std::int64_t spares = 0;
    std::string ports;
  };
  struct Parallel {
    std::int64_t tensor_parallel_size = 1;
    std::int64_t pipeline_parallel_size = 1;
    std::int64_t data_parallel_size = 1;
    std::int64_t context_parallel_size = 1;
    bool sequence_parallel = false;
    std::optional<std::int64_t> expert_parallel_size = {};
    bool data_parallel_attention = false;
    std::string collectives = {};
    std::string placement = {};
  };
  struct Engine {
    std::optional<std::int64_t> max_model_len;
    std::int64_t max_num_seqs = 0;
    std::optional<std::int64_t> max_num_batched_tokens;
    std::int64_t block_size = 0;
    std::optional<std::int64_t> kv_cache_blocks;
    double gpu_memory_utilization = 0;
    std::optional<double> swap_space;  ///< GiB
    bool enable_prefix_caching = false;
    bool cascade_attention = false;
    bool enable_chunked_prefill = false;
    bool async_scheduling = false;
    std::string scheduling_policy;
    std::string speculative_method;
    std::string speculative_model;
    std::int64_t num_speculative_tokens = 0;
    std::int64_t prompt_lookup_max = 0;
    std::optional<std::int64_t> threads_per_worker;
    std::optional<bool> deterministic;
  };
  struct KvCache {
    std::string dtype;
    std::string residual;
    std::optional<std::vector<std::string>> residual_layers;
    std::string policy;
    std::int64_t sink_tokens = 0;
    std::optional<std::int64_t> window_tokens;
    std::int64_t heavy_tokens = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t pooling_tokens = 0;
    std::optional<std::int64_t> drop_tokens;
  };
  struct Precision {
    std::string fallback;
    double max_activation = 0;
  };
  struct Job {
    std::string input;   ///< empty only when loaded for Purpose::check
    std::string output;  ///< empty only when loaded for Purpose::check
    std::int64_t num_shards = 1;
    std::int64_t shard_index = 0;  ///< < num_shards
    std::string resume;
    double grace_seconds = 0;
    std::int64_t disk_full_wait_seconds = 0;
    bool ordered = false;
    std::optional<std::int64_t> max_failures = {};
    std::int64_t seed = 0;
  };
  struct Restart {
    std::int64_t max = 0;
    std::int64_t per_minutes = 0;
    std::int64_t wait_seconds = 0;
  };
  struct Metrics {
    std::optional<std::int64_t> port;  ///< absent: off; 0: the kernel chooses
    std::string address;
  };

  /// Targets for an answer, in milliseconds; absent: none.
  struct Slo {
    std::optional<double> ttft_ms;
    std::optional<double> itl_ms;
    std::optional<double> e2e_ms;
  };

  std::string name;
  Model model;
  Cluster cluster;
  Parallel parallel;
  Engine engine;
  KvCache kv_cache;
  Precision precision;
  Job job;
  Restart restart;
  Metrics metrics;
  Slo slo;
};

/// The served name under which a request may name any model.
inline constexpr std::string_view any_model_name = "*";

/// A value from the command line that overrides the file's.
struct Override {
  std::string origin;  ///< its name in messages, e.g. "--set engine.block_size=32"
  std::string key;     ///< dotted, e.g. "engine.block_size"
  std::string value;   ///< the value as YAML; for a key of type text, the text itself
};

/// Splits the "a.b=c" of a --set at its first '='. Errors: invalid_argument that shows the form.
Result<Override> parse_override(std::string_view argument);

/// The use of the configuration: a run needs job.input and job.output, a check does not.
enum class Purpose { run, check };

/// Reads and validates the YAML file at `path` (at most 1 MiB) with `overrides` applied. Relative
/// paths in it stay relative to the current folder. Errors: not_found or io for the file itself;
/// invalid_argument for its content, with one line per mistake, at most 10, each as `file:line:
/// what is wrong, what is allowed` or `--set a.b=c: ...`. Nothing is checked against the file
/// system, the model or the devices here.
Result<Config> load_config(const std::string& path, std::span<const Override> overrides,
                           Purpose purpose);

/// The same from YAML text; messages call it `file_name`.
Result<Config> parse_config(std::string_view text, std::string_view file_name,
                            std::span<const Override> overrides, Purpose purpose);

/// The default name of a model in this folder: the last part of the absolute path, or "model" for
/// the root.
std::string model_folder_name(const std::string& path);

/// The whole configuration as YAML, defaults included: the output of `launcher check`.
std::string to_yaml(const Config& config);

}  // namespace troupe
