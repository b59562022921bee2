#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// What a cluster YAML says, validated and with defaults filled in. One member per key, the names
/// are the YAML's; an absent optional is `auto`, or `off`. What each key means, its default and its
/// limits stand in the table of config_schema.hpp, which is the only place that knows them.
struct Config {
  struct Model {
    std::string path;
    /// Never empty: default the folder's name. any_model_name, if given, stands behind the others.
    std::vector<std::string> served_model_name;
    std::string dtype;
    std::string load_format;
  };
  struct Cluster {
    std::string launch;
    std::vector<std::string> hosts;
    std::string device;
    std::optional<std::int64_t> devices_per_node;
    std::string network;
  };
  struct Parallel {
    std::int64_t tensor_parallel_size = 1;
    std::int64_t pipeline_parallel_size = 1;
    std::int64_t data_parallel_size = 1;
    std::int64_t context_parallel_size = 1;
    bool sequence_parallel = false;
    std::optional<std::int64_t> expert_parallel_size = {};
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
  struct Job {
    std::string input;   ///< empty only when loaded for Purpose::check
    std::string output;  ///< empty only when loaded for Purpose::check
    std::string resume;
    double grace_seconds = 0;
    bool ordered = false;
    std::optional<std::int64_t> max_failures = {};
    std::int64_t seed = 0;
  };
  struct Metrics {
    std::optional<std::int64_t> port;  ///< absent: off; 0: the kernel chooses
    std::string address;
  };

  /// What an answer is to keep, in milliseconds; absent: it may take any time.
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
  Job job;
  Metrics metrics;
  Slo slo;
};

/// The served name under which a request may name any model.
inline constexpr std::string_view any_model_name = "*";

/// A value from the command line that goes before the file's.
struct Override {
  std::string origin;  ///< how messages call it, e.g. "--set engine.block_size=32"
  std::string key;     ///< dotted, e.g. "engine.block_size"
  std::string value;   ///< YAML of the value; for a key that holds text, the text itself
};

/// Splits the "a.b=c" of a --set at its first '='. Errors: invalid_argument that shows the form.
Result<Override> parse_override(std::string_view argument);

/// What the configuration is wanted for: a run needs job.input and job.output, a check does not.
enum class Purpose { run, check };

/// Reads and validates the YAML file at `path` (at most 1 MiB) with `overrides` on top. Relative
/// paths in it are left as they are: they count from the current folder. Errors: not_found or io
/// for the file itself; invalid_argument for its content, with one line per mistake, at most 10 of
/// them, each as `file:line: what is wrong, what is allowed` or `--set a.b=c: ...`. Nothing is
/// checked against the file system, the model or the devices here.
Result<Config> load_config(const std::string& path, std::span<const Override> overrides,
                           Purpose purpose);

/// The same from YAML text; `file_name` is what messages call it.
Result<Config> parse_config(std::string_view text, std::string_view file_name,
                            std::span<const Override> overrides, Purpose purpose);

/// What a model in this folder is called unless somebody says: the last part of the absolute path,
/// "model" where that is the root.
std::string model_folder_name(const std::string& path);

/// The whole configuration as YAML, defaults included: what `launcher check` prints.
std::string to_yaml(const Config& config);

}  // namespace troupe
