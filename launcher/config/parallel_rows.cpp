#include "launcher/config/schema_rows.hpp"

namespace troupe::schema {

std::vector<KeySpec> parallel_rows() {
  constexpr auto integer = ValueType::integer;
  using P = C::Parallel;
  return {
      row<&C::parallel, &P::tensor_parallel_size>(
          {.key = "parallel.tensor_parallel_size",
           .type = integer,
           .default_value = "1",
           .doc = "workers that share each layer's matrices",
           .reference =
               "Workers that share each layer's matrices. It must divide the attention heads and "
               "what the matrices are cut along, and the segments S that row-parallel matrices are "
               "summed in ([architecture](architecture.md#exactness)): so in practice 1, 2, 4 or "
               "8. KV heads are copied where there are more workers than KV heads. What does not "
               "divide what is told before anything starts. The answers are the same bytes at "
               "every size.",
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::pipeline_parallel_size>(
          {.key = "parallel.pipeline_parallel_size",
           .type = integer,
           .default_value = "1",
           .doc = "stages the layers are cut into",
           .reference = "Stages that the layers are cut into, each with workers of its own; at "
                        "most as many as layers. They are balanced by what a token costs in each "
                        "layer, the embedding and the head counted, so stages may have different "
                        "numbers of layers. As many steps are under way as there are stages. The "
                        "answers are the same bytes at every size.",
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::data_parallel_size>(
          {.key = "parallel.data_parallel_size",
           .type = integer,
           .default_value = "1",
           .doc = "replicas of the model",
           .reference =
               "Replicas of the model, each with an executor and workers of its own. A request "
               "goes to the replica that has the fewest tokens to do with it: those outstanding "
               "there and its own, less the beginning of its prompt that this replica was given "
               "before. The answers are the same bytes at every size.",
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::context_parallel_size>(
          {.key = "parallel.context_parallel_size",
           .type = integer,
           .default_value = "1",
           .doc = "workers that share the tokens of a step",
           .reference =
               "Workers that share the tokens of a step, for long prompts: each holds the same "
               "weights and computes its part of the tokens, which divides the work of long "
               "prompts. Where this size times `tensor_parallel_size` divides the KV heads (but "
               "for latent attention and norms over all heads), attention's heads and the KV cache "
               "are split over the workers; otherwise each has the keys and values of all tokens. "
               "Steps of few tokens, such as those that "
               "generate, are computed by each, but for the heads: for many requests "
               "`data_parallel_size` is better. An `engine.max_num_batched_tokens` that leaves "
               "each worker some thousand tokens of a step divides a long prompt best. Experts are "
               "spread over the tensor ranks only. The answers are the same bytes at every size on "
               "CPUs, and on GPUs with `engine.deterministic`.",
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::sequence_parallel>(
          {.key = "parallel.sequence_parallel",
           .type = ValueType::boolean,
           .default_value = "false",
           .doc = "norms and residuals split over tokens",
           .reference = "Whether norms and residuals are split over tokens: each tensor rank keeps "
                        "ceil(tokens / ranks) rows of the residual stream, partial sums are "
                        "reduce-scattered and rows gathered before each block. The answers are the "
                        "same bytes either way. Without effect on one tensor rank."}),
      row<&C::parallel, &P::expert_parallel_size>(
          {.key = "parallel.expert_parallel_size",
           .type = integer,
           .default_value = "auto",
           .doc = "workers that whole experts are dealt to; auto: the tensor ranks",
           .reference =
               "Workers of a stage that whole experts are dealt to, E; for models with experts, "
               "which E must divide. A token's rows travel to the workers that have its experts "
               "and back. `auto`: the tensor ranks, or the largest number of them that divides "
               "both them and the experts. A smaller E that divides `tensor_parallel_size` leaves "
               "each expert split over `tensor_parallel_size` / E workers; with 1 every worker has "
               "its part of every expert. A multiple of `tensor_parallel_size` that divides "
               "`tensor_parallel_size` x `data_parallel_size` spreads experts over replicas, which "
               "then take their steps together, one without requests too. With "
               "`data_parallel_attention`, `auto` is the workers of all replicas, as far as they "
               "divide the experts. The answers are the same bytes at every size.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1024}),
      row<&C::parallel, &P::data_parallel_attention>(
          {.key = "parallel.data_parallel_attention",
           .type = ValueType::boolean,
           .default_value = "false",
           .doc = "replicas share all but attention",
           .reference =
               "Whether replicas share all layers but attention: each attends to its own requests, "
               "so that no KV is held twice, while dense MLPs, shared experts, embedding and head "
               "are split over the workers of all of them as over tensor ranks, and the rows of "
               "all "
               "replicas are gathered before these. It is for latent attention (DeepSeek), whose "
               "KV "
               "cannot be split over tensor ranks; experts are best spread over the same workers, "
               "which `expert_parallel_size: auto` does then. The replicas that experts are spread "
               "over take their steps together, or all if each has its own experts, one without "
               "requests too. `data_parallel_size` of them times `tensor_parallel_size` must "
               "divide "
               "what the split matrices are cut along, so it is 8 at most in practice. Not with "
               "`context_parallel_size` or `sequence_parallel`. The answers are the same bytes "
               "either way on CPUs, and on GPUs with `engine.deterministic`."}),
      row<&C::parallel, &P::collectives>(
          {.key = "parallel.collectives",
           .type = ValueType::text,
           .default_value = "auto",
           .doc = "what carries tensors between workers; auto: shared memory",
           .reference =
               "What carries tensors between workers. `auto` is `shm`, the shared memory of the "
               "node; `network` is TLS 1.3 over TCP, slower on one machine, as between hosts "
               "([who gets in](operations.md#security)). The answers are the same bytes with "
               "both. On GPUs tensors go from one to another by `nccl` whatever is said here, and "
               "`shm` or `network` carries what the hosts tell each other; there `auto` and `nccl` "
               "are the same.",
           .choices = {"auto", "shm", "network", "nccl"},
           .renamed = {"gloo", "network"}}),
      row<&C::parallel, &P::placement>(
          {.key = "parallel.placement",
           .type = ValueType::text,
           .default_value = "pack",
           .doc = "how workers are laid out over nodes",
           .reference = "How workers are laid out over nodes.",
           .choices = {"pack", "spread", "strict_pack", "strict_spread"},
           .this_version = {"pack"}}),
  };
}

}  // namespace troupe::schema
