#include "launcher/config/schema_rows.hpp"

namespace troupe::schema {

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
           .reference = "The most tokens of prompt and answer together. `auto`: "
                        "`max_position_embeddings` of the model, where its rotary embedding "
                        "stretches it ([models](models.md#rotary-embeddings)) times that factor; "
                        "more than that is refused, but for `kv_cache.policy: streaming`.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1 << 30}),
      row<&C::engine, &E::max_num_seqs>({.key = "engine.max_num_seqs",
                                         .type = integer,
                                         .default_value = "256",
                                         .doc = "the most requests in one step",
                                         .reference = "The most requests in one step.",
                                         .minimum = 1,
                                         .maximum = 65536}),
      row<&C::engine, &E::max_num_batched_tokens>(
          {.key = "engine.max_num_batched_tokens",
           .type = integer,
           .default_value = "auto",
           .doc = "the most tokens in one step; auto: 2048 on CPUs, 16384 on GPUs, "
                  "8192 in pipelines",
           .reference =
               "The most tokens in one step. `auto`: 2048 on CPUs, 16384 on GPUs, 8192 on those of "
               "a pipeline, whose last stages wait for the first step to come through, and 15360 "
               "on GPUs with 128 heads of latent attention, which take no more. At least "
               "`engine.max_num_seqs`.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = largest_size}),
      row<&C::engine, &E::block_size>({.key = "engine.block_size",
                                       .type = integer,
                                       .default_value = "16",
                                       .doc = "tokens in a block of the KV cache",
                                       .reference = "Tokens in a block of the KV cache.",
                                       .choices = {"8", "16", "32", "64", "128"},
                                       .this_version = {"16", "32", "64", "128"}}),
      row<&C::engine, &E::kv_cache_blocks>(
          {.key = "engine.kv_cache_blocks",
           .type = integer,
           .default_value = "auto",
           .doc = "blocks of the KV cache; auto: from the memory there is",
           .reference =
               "Blocks of the KV cache. `auto`: as many as `max_num_seqs` requests of "
               "`max_model_len` tokens can use; on CPUs within half of the memory that is free "
               "(`MemAvailable`) when the model is loaded, on GPUs within "
               "`engine.gpu_memory_utilization`. A request starts when there are blocks for the "
               "tokens that are known of it and a few to spare; until then it waits. If blocks run "
               "out later, running requests are preempted: they give theirs back, and come back "
               "from host memory (`engine.swap_space`) or are computed anew when there is room.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1 << 30}),
      row<&C::engine, &E::gpu_memory_utilization>(
          {.key = "engine.gpu_memory_utilization",
           .type = ValueType::number,
           .default_value = "0.92",
           .doc = "the share of a GPU's memory for weights and KV cache",
           .reference =
               "The share of each GPU's memory that weights, buffers of passes and KV cache "
               "together "
               "may take, with what others have taken of it: `engine.kv_cache_blocks: auto` leaves "
               "the rest free. No effect on CPUs.",
           .minimum = 0.01,
           .maximum = 1}),
      row<&C::engine, &E::swap_space>(
          {.key = "engine.swap_space",
           .type = ValueType::number,
           .default_value = "auto",
           .doc = "GiB of host memory of each worker for requests whose blocks others need",
           .reference =
               "GiB of host memory of each worker where the keys and values of requests are kept "
               "whose blocks others need; without room there they are computed anew. `auto`: none "
               "on CPUs, whose KV cache is host memory itself; with GPUs what `max_num_seqs` "
               "requests of `max_model_len` tokens want besides the KV cache, within a quarter of "
               "the memory that is free for all workers together. It is taken as it is used, on "
               "GPUs two GiB ahead of that, and page-locked. Answers are the same. No effect with "
               "a "
               "draft model.",
           .allows_auto = true,
           .minimum = 0,
           .maximum = 1 << 20}),
      row<&C::engine, &E::enable_prefix_caching>(
          {.key = "engine.enable_prefix_caching",
           .type = boolean,
           .default_value = "true",
           .doc = "prompts that begin alike share their KV blocks",
           .reference = "Prompts that begin alike share the KV blocks of their common beginning: "
                        "each full block is computed once and stays findable until its memory is "
                        "needed. Answers are the same with and without."}),
      row<&C::engine, &E::cascade_attention>(
          {.key = "engine.cascade_attention",
           .type = boolean,
           .default_value = "true",
           .doc = "on GPUs, a prefix that requests share is read once a step",
           .reference = "On GPUs a decode step reads the keys and values of a prefix that requests "
                        "share (`engine.enable_prefix_caching`) once for many of them, where that "
                        "is faster. No effect on CPUs and on latent attention."}),
      row<&C::engine, &E::enable_chunked_prefill>(
          {.key = "engine.enable_chunked_prefill",
           .type = boolean,
           .default_value = "true",
           .doc = "a long prompt is read over several steps",
           .reference = "A long prompt is read over several steps. Without, "
                        "`engine.max_num_batched_tokens` must hold `engine.max_model_len`."}),
      row<&C::engine, &E::async_scheduling>(
          {.key = "engine.async_scheduling",
           .type = boolean,
           .default_value = "true",
           .doc = "a step is planned while the one before it runs",
           .reference = "A step is planned while the one before it runs, before its tokens are "
                        "known to the executor. Answers are the same; a request that ends by a "
                        "stop token costs one step that is thrown away."}),
      row<&C::engine, &E::scheduling_policy>(
          {.key = "engine.scheduling_policy",
           .type = ValueType::text,
           .default_value = "fcfs",
           .doc = "who is served first",
           .reference = "Who is served first, and whose blocks are taken last when there are too "
                        "few. `fcfs`: first come, first served. `priority`: the lowest `priority` "
                        "of the requests first. `sjf`: the fewest tokens of prompt and "
                        "`max_tokens` first; a token weighs as much as one later arrival, so that "
                        "nobody waits for ever. `deadline`: who must begin first to be in time for "
                        "its `deadline_ms`, then who has none, then who is too late.",
           .choices = {"fcfs", "priority", "sjf", "deadline"}}),
      row<&C::engine, &E::speculative_method>(
          {.key = "engine.speculative_method",
           .type = ValueType::text,
           .default_value = "none",
           .doc = "how next tokens are guessed, so that a step may bring several",
           .reference =
               "How next tokens are guessed, so that one step may bring several. `ngram`: what "
               "followed the last tokens where they occurred before. `draft_model`: what the small "
               "model `engine.speculative_model` says; it must have the same vocabulary, and is "
               "held whole by one worker. A guess counts only if it is the token that would have "
               "been sampled: answers are the same as without, greedy or not.",
           .choices = {"none", "ngram", "draft_model"}}),
      row<&C::engine, &E::speculative_model>(
          {.key = "engine.speculative_model",
           .type = ValueType::text,
           .default_value = "none",
           .doc = "of draft_model: the folder of that model",
           .reference = "Of `draft_model`: the folder of that model's checkpoint."}),
      row<&C::engine, &E::num_speculative_tokens>({.key = "engine.num_speculative_tokens",
                                                   .type = integer,
                                                   .default_value = "3",
                                                   .doc = "tokens guessed in a step at most",
                                                   .reference = "Tokens guessed in a step at most.",
                                                   .minimum = 1,
                                                   .maximum = 16}),
      row<&C::engine, &E::prompt_lookup_max>(
          {.key = "engine.prompt_lookup_max",
           .type = integer,
           .default_value = "3",
           .doc = "of ngram: how many last tokens are looked for in what came before",
           .reference =
               "Of `ngram`: how many last tokens, at most, are looked for in what came before.",
           .minimum = 1,
           .maximum = 64}),
      row<&C::engine, &E::threads_per_worker>(
          {.key = "engine.threads_per_worker",
           .type = integer,
           .default_value = "auto",
           .doc = "CPU threads of a worker; auto: cores / workers, at least 1",
           .reference = "CPU threads of a worker's model. `auto`: the cores that the job may use "
                        "(CPU affinity, which Slurm sets, may leave it fewer than the machine has) "
                        "divided by the workers, at least 1. With more threads than cores, "
                        "`launcher check` prints a warning.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1024}),
      row<&C::engine, &E::deterministic>(
          {.key = "engine.deterministic",
           .type = boolean,
           .default_value = "auto",
           .doc = "the same bytes whoever shares the batch; on CPUs always",
           .reference =
               "The same bytes whoever shares the batch, however prompts are cut into steps, and "
               "at tensor sizes 1, 2 and 4. On CPUs always so. On GPUs `true` makes it so for "
               "bfloat16, at a [cost](operations.md#the-same-bytes-on-gpus); models with experts "
               "then need whole ones (`parallel.expert_parallel_size`).",
           .allows_auto = true,
           .this_version = {"auto", "true"}}),
  };
}

}  // namespace troupe::schema
