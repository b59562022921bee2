#include "launcher/cli/quantize_options.hpp"

#include <algorithm>
#include <array>

#include <CLI/CLI.hpp>

#include "launcher/cli/eval_options.hpp"
#include "launcher/cli/number_checks.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {

std::string_view QuantizeArguments::summary() const {
  return "Makes a checkpoint in fewer bits from one in bf16, f16 or f32, on this machine's CPUs.";
}

std::string QuantizeArguments::details() const {
  return R"(Examples:
  launcher quantize --model Qwen3-0.6B --output Qwen3-0.6B-FP8 --scheme fp8
  launcher quantize -m Qwen3-0.6B -o Qwen3-0.6B-W4 --scheme w4a16 \
      --method gptq --calibrate text.txt
  launcher eval -m Qwen3-0.6B --against Qwen3-0.6B-W4 --text other.txt \
      --max-perplexity-increase 3%
  launcher quantize -m Qwen3-0.6B-FP8 -o Qwen3-0.6B-FP8-KV --scheme kv-fp8 \
      --calibrate text.txt

Schemes: what is stored, in compressed-tensors' formats
  fp8    E4M3, a scale for each row; half of bf16
  int8   a scale for each row; half of bf16
  w4a16  int4, a scale for --group-size columns of a row; about a quarter
  mxfp4  E2M1, a power of two for 32 columns of a row; about a quarter
  nvfp4  E2M1, a scale in E4M3 for 16 columns of a row and one for the matrix;
         28% of bf16
Weights as they are, in any of these formats or none:
  kv-fp8  scales of an FP8 KV cache, one for each layer's keys and one for its
          values: the largest of --calibrate. Used with kv_cache.dtype fp8_e4m3
Weights set to 0, and stored as before; for trying what a model can do without:
  sparse-2:4   two of each four columns of a row
  sparse-rows  --sparsity of the channels of each MLP and expert: rows of gate
               and up, and the columns of down that read them
fp8 and int8 say that activations are quantised too, token by token. Troupe
does so if asked: model.quantization fp8 (GPUs), w8a8 (int8).

Methods: how numbers are chosen
  rtn          the nearest ones. Needs no text, and memory for one tensor
  gptq         later columns make up for the errors of earlier ones
               (int8, w4a16, mxfp4, nvfp4)
  awq          channels with large activations are scaled up first
               (w4a16, nvfp4)
  smoothquant  outliers of activations move into the weights (int8)
  magnitude    the smallest weights become 0 (sparse-2:4, sparse-rows)
  wanda        the smallest, times the size of their inputs (likewise)
All but rtn and magnitude read --calibrate: text like that which the model
will see, and not the one it is judged by. They go layer by layer and hold one
of them in f32.

Embeddings, norms, the head and routers stay as they are. OUT is written shard
by shard; if the command ends early, the same command goes on where it was.
sensitive_layers.json in OUT says how much each layer lost.

Exit codes:
  0    made
  2    refused before anything was written
  3    failed; what is finished stays, and the same command goes on
  130  ended by Ctrl-C (143: SIGTERM); the same command goes on)";
}

void QuantizeArguments::declare(CLI::App& app) {
  const auto text = [&](const char* name, std::string& value, const char* type, const char* what) {
    return app.add_option(name, value, what)->type_name(type)->expected(1);
  };
  text("--model,-m", options_.model, "FOLDER", "the checkpoint, with config.json and safetensors");
  text("--output,-o", options_.output, "FOLDER", "the one to make; new, or one to go on with");
  text("--scheme", scheme_, "SCHEME",
       "fp8, int8, w4a16, mxfp4 or nvfp4; sparse-2:4 or sparse-rows; or kv-fp8");
  text("--method", method_, "METHOD",
       "rtn, gptq, awq or smoothquant; of sparse ones magnitude or wanda")
      ->default_str("rtn; magnitude");
  text("--calibrate", options_.calibrate, "FILE", "UTF-8 text; gzip and zstd are unpacked");
  const auto integer = [&](const char* name, std::int64_t& value, std::int64_t least,
                           std::int64_t most, const char* what) {
    return app.add_option(name, value, what)
        ->type_name("N")
        ->expected(1)
        ->check(integer_between(least, most))
        ->capture_default_str();
  };
  integer("--calibrate-windows", options_.calibrate_windows, 1, 1 << 20,
          "windows of it, from all over the text");
  integer("--calibrate-length", options_.calibrate_length, 16, 1 << 20, "tokens of a window");
  integer("--group-size", options_.quantization.group_columns, 16, 1 << 16,
          "columns that share a scale (w4a16)");
  text("--scales", scales_, "CHOICE",
       "absmax: the largest weight fits; mse: it is clipped where the squared error is less")
      ->capture_default_str();
  app.add_flag("--act-order", options_.quantization.gptq.act_order,
               "gptq takes the columns with the largest inputs first");
  app.add_option("--ignore", options_.ignored,
                 "modules that stay as they are: a name such as model.layers.0 or mlp.down_proj, "
                 "or re: and an expression")
      ->type_name("PATTERN")
      ->expected(1, 1 << 10);
  text("--keep", keep_, "CHOICE", "auto: the layers that lose the most stay as they are; or none")
      ->capture_default_str();
  text("--keep-budget", keep_budget_, "SHARE",
       "bytes that --keep auto may add, of those of the whole input")
      ->capture_default_str();
  text("--sparsity", sparsity_, "SHARE", "of channels that sparse-rows removes")
      ->default_str("25%");
  integer("--threads", threads_, 1, 1 << 12, "that compute")->default_str("all cores");
  app.add_flag("--quiet,-q", options_.quiet, "no progress");
}

namespace {

Result<CompressionScheme> parse_scheme(std::string_view text) {
  using enum QuantizationScheme;
  constexpr std::array<CompressionScheme, 8> schemes = {fp8,
                                                        int8,
                                                        w4a16,
                                                        mxfp4,
                                                        nvfp4,
                                                        SparsityStructure::two_of_four,
                                                        SparsityStructure::rows,
                                                        KvCacheScheme::fp8};
  for (const CompressionScheme& scheme : schemes) {
    if (to_string(scheme) == text) return scheme;
  }
  if (text.empty()) {
    return fail(ErrorCode::invalid_argument,
                "which numbers? Give --scheme fp8, int8, w4a16, mxfp4 or nvfp4, sparse-2:4 or "
                "sparse-rows, or kv-fp8");
  }
  return fail(ErrorCode::invalid_argument,
              "--scheme: expected fp8, int8, w4a16, mxfp4, nvfp4, sparse-2:4, sparse-rows or "
              "kv-fp8, found {}",
              text);
}

Result<QuantizationMethod> parse_method(std::string_view text) {
  using enum QuantizationMethod;
  for (const auto method : {rtn, gptq, awq, smoothquant, magnitude, wanda}) {
    if (to_string(method) == text) return method;
  }
  return fail(ErrorCode::invalid_argument,
              "--method: expected rtn, gptq, awq or smoothquant, or magnitude or wanda, found {}",
              text);
}

/// Refuses what is about weights beside kv-fp8, and kv-fp8 without its text.
Result<void> check_kv_scheme(const QuantizeOptions& options) {
  if (!is_about_kv(options.quantization.scheme)) return {};
  const auto refuse = [](std::string_view option) {
    return fail(ErrorCode::invalid_argument,
                "{} is about weights, which --scheme kv-fp8 leaves as they are: leave it out",
                option);
  };
  if (options.quantization.method != QuantizationMethod::rtn) return refuse("--method");
  if (options.quantization.scales != ScaleChoice::absmax) return refuse("--scales mse");
  if (options.keeps_layers) return refuse("--keep auto");
  if (!options.ignored.empty()) return refuse("--ignore");
  if (!options.calibrate.empty()) return {};
  return fail(ErrorCode::invalid_argument,
              "--scheme kv-fp8 looks at keys and values: give a text with --calibrate FILE");
}

/// Refuses a method that has nothing to do for a scheme, and one without its text.
Result<void> check_method(const QuantizeOptions& options) {
  using enum QuantizationMethod;
  const QuantizationMethod method = options.quantization.method;
  const CompressionScheme& scheme = options.quantization.scheme;
  const auto is = [&](QuantizationScheme codes) { return scheme == CompressionScheme(codes); };
  const auto only_for = [&](std::string_view schemes) {
    return fail(ErrorCode::invalid_argument,
                "--method {} is for {}: give one of these to --scheme, or another method",
                to_string(method), schemes);
  };
  const bool prunes = method == magnitude || method == wanda;
  if (prunes && !is_pruning(scheme)) return only_for("sparse-2:4 and sparse-rows");
  if (!prunes && is_pruning(scheme)) {
    return fail(ErrorCode::invalid_argument,
                "--scheme {} goes by --method magnitude or wanda, found {}", to_string(scheme),
                to_string(method));
  }
  if (is_pruning(scheme) && options.keeps_layers) {
    return fail(ErrorCode::invalid_argument,
                "--keep auto counts bytes, of which --scheme {} saves none: leave layers out with "
                "--ignore",
                to_string(scheme));
  }
  if (method == gptq && is(QuantizationScheme::fp8)) {
    return only_for("int8, w4a16, mxfp4 and nvfp4");
  }
  if (method == awq && !is(QuantizationScheme::w4a16) && !is(QuantizationScheme::nvfp4)) {
    return only_for("w4a16 and nvfp4");
  }
  if (method == smoothquant && !is(QuantizationScheme::int8)) return only_for("int8");
  if (method != rtn && method != magnitude && options.calibrate.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--method {} looks at activations: give a text with --calibrate FILE",
                to_string(method));
  }
  return {};
}

}  // namespace

Result<QuantizeOptions> QuantizeArguments::judge() const {
  QuantizeOptions options = options_;
  if (options.model.empty()) {
    return fail(ErrorCode::invalid_argument,
                "which model? Give --model FOLDER, a checkpoint in bf16, f16 or f32");
  }
  if (options.output.empty()) {
    return fail(ErrorCode::invalid_argument, "where to? Give --output FOLDER, a new one");
  }
  TROUPE_TRY(options.quantization.scheme, parse_scheme(scheme_));
  const bool prunes = is_pruning(options.quantization.scheme);
  const std::string method = !method_.empty() ? method_ : prunes ? "magnitude" : "rtn";
  TROUPE_TRY(options.quantization.method, parse_method(method));
  options.keeps_layers = keep_ == "auto";
  if (!is_about_kv(options.quantization.scheme)) TROUPE_CHECK(check_method(options));
  if (!sparsity_.empty()) {
    const auto sparsity = parse_share(sparsity_);
    if (!sparsity.ok() || *sparsity >= 1.0) {
      return fail(ErrorCode::invalid_argument,
                  "--sparsity: expected a share below 100%, such as 25% or 0.25, found {}",
                  sparsity_);
    }
    options.quantization.sparsity = *sparsity;
  }
  if (scales_ != "absmax" && scales_ != "mse") {
    return fail(ErrorCode::invalid_argument, "--scales: expected absmax or mse, found {}", scales_);
  }
  options.quantization.scales = scales_ == "mse" ? ScaleChoice::mse : ScaleChoice::absmax;
  TROUPE_CHECK(check_kv_scheme(options));
  if (options.quantization.group_columns % 8 != 0) {
    return fail(ErrorCode::invalid_argument,
                "--group-size: expected a multiple of 8, such as 128 or 32, found {}",
                options.quantization.group_columns);
  }
  for (const std::string& text : options.ignored) {
    auto pattern = ModulePattern::parse(text);
    if (!pattern.ok()) {
      return fail(pattern.error().code, "--ignore: {}", pattern.error().message);
    }
    options.quantization.ignored.push_back(*std::move(pattern));
  }
  if (keep_ != "auto" && keep_ != "none") {
    return fail(ErrorCode::invalid_argument, "--keep: expected auto or none, found {}", keep_);
  }
  auto budget = parse_share(keep_budget_);
  if (!budget.ok()) {
    return fail(ErrorCode::invalid_argument,
                "--keep-budget: expected a share such as 5% or 0.05, found {}", keep_budget_);
  }
  options.keep_budget = *budget;
  options.threads = threads_ > 0 ? static_cast<int>(threads_) : usable_cpu_count();
  return options;
}

}  // namespace troupe
