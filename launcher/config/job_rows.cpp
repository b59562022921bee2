#include "launcher/config/schema_rows.hpp"

namespace troupe::schema {

std::vector<KeySpec> model_and_cluster_rows() {
  constexpr auto text = ValueType::text;
  return {
      row<&C::name>({.key = "name",
                     .type = text,
                     .default_value = "batch",
                     .doc = "what the job is called in messages and answer ids",
                     .reference = "What the job is called. With the path of the input it gives the "
                                  "job's part of the answers' ids."}),
      row<&C::model, &C::Model::path>(
          {.key = "model.path",
           .type = text,
           .default_value = "",
           .doc = "a Hugging Face folder: config.json, safetensors, tokenizer.json",
           .reference =
               "The folder of the checkpoint in Hugging Face's layout: `config.json`, "
               "`model.safetensors` or shards with `model.safetensors.index.json`, or a "
               "[GGUF file](models.md#gguf), and optionally `generation_config.json`, "
               "`tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`. Required. "
               "The architectures of this version are a [table](models.md#families). "
               "Without a tokenizer, prompts must be token ids and answers have no text; "
               "without a chat template there are no chats."}),
      row<&C::model, &C::Model::served_model_name>(
          {.key = "model.served_model_name",
           .type = ValueType::text_list,
           .default_value = "",
           .doc = "the names requests may use for it, * for any; default: the folder's name",
           .reference = "The names that requests may use in `model`; another name is an error "
                        "line. If the key is absent, the name of the folder. A name may have an "
                        "owner in front (`meta-llama/NAME`), the name that the checkpoint's "
                        "`config.json` records as `_name_or_path` is taken too, and with `\"*\"` "
                        "any name. A request without `model` is answered under the first name."}),
      row<&C::model, &C::Model::dtype>(
          {.key = "model.dtype",
           .type = text,
           .default_value = "auto",
           .doc = "what weights are computed in; auto: float32 on CPUs",
           .reference =
               "What the model computes with. `auto` is `float32` on CPUs; on GPUs it is "
               "`bfloat16`, but `float32` for a checkpoint of `float32`. On CPUs, with `float32`, "
               "weights keep the values that the checkpoint has (those stored as bf16 stay bf16 in "
               "memory) and "
               "the KV cache is fp32. With `bfloat16`, matrices and the KV cache are rounded to "
               "bf16. Activations and sums are fp32 in both.",
           .choices = {"auto", "float32", "bfloat16", "float16"},
           .this_version = {"auto", "float32", "bfloat16"}}),
      row<&C::model, &C::Model::load_format>(
          {.key = "model.load_format",
           .type = text,
           .default_value = "auto",
           .doc = "where weights come from; auto: safetensors or GGUF",
           .reference =
               "Where weights come from. `auto` and `safetensors`: safetensors, or without these a "
               "GGUF file. With `dummy`, nothing but "
               "`config.json` is read: weights, those of a draft model too, are small fixed "
               "pseudo-random values, the same in every arrangement. For measuring a model whose "
               "weights are not there; without a `tokenizer.json` prompts are given as token ids.",
           .choices = {"auto", "safetensors", "dummy"}}),
      row<&C::model, &C::Model::quantization>(
          {.key = "model.quantization",
           .type = text,
           .default_value = "none",
           .doc = "weights in fewer bits made while they are read: none, fp8, int8, w8a8 or w4a16",
           .reference =
               "Whether weights are held in fewer bits, made from the checkpoint's while they are "
               "read. `fp8`: the projections of attention, of MLPs and of experts become E4M3 "
               "codes with a scale for each row; embedding, head (`model.quantize_lm_head`) and "
               "routers stay as they are. On GPUs (Hopper) the rows that they are multiplied with "
               "are quantized too, each with a scale of its own; on CPUs rows stay fp32. `int8` "
               "and `w4a16`: the same matrices (experts on CPUs only) become signed bytes with a "
               "scale for each row, or 4-bit codes with a scale for each 128 columns, and the head "
               "becomes bytes, on GPUs unless it is tied to the embedding; the rows that they are "
               "multiplied with stay bfloat16 (GPUs) or "
               "fp32. `w8a8`: as `int8`, and the rows become bytes too, each with a scale of its "
               "own, but for those of the head and on GPUs (Hopper) of matrices whose rows or "
               "columns are no multiple of 16; prompts are faster, answers less exact. With a "
               "checkpoint that is "
               "quantised already, `int8` is for its head alone, `w8a8` also rounds the rows of "
               "its int8 matrices, and `fp8` makes codes of its numbers on GPUs. Answers differ "
               "from those without; see [models](models.md#8-bit-weights). Not for "
               "`engine.deterministic` on GPUs.",
           .choices = {"none", "fp8", "int8", "w8a8", "w4a16"}}),
      row<&C::model, &C::Model::quantize_lm_head>(
          {.key = "model.quantize_lm_head",
           .type = ValueType::boolean,
           .default_value = "auto",
           .doc = "the head in 8 bits too; auto: with int8, w8a8 and w4a16",
           .reference =
               "Whether `model.quantization` is for the head, too. `auto`: with `int8`, `w8a8` "
               "and `w4a16`, not with `fp8`. `true` with `fp8`: the head becomes E4M3 codes with a "
               "scale for each row, and on GPUs the rows that it is multiplied with are quantized, "
               "as with the other matrices. `false`: it stays as the checkpoint has it. On GPUs a "
               "head that is tied to an embedding of the same pipeline stage, or whose rows on a "
               "rank are no multiple of 16 (`fp8`), stays as it is, which `launcher check` says. "
               "The head is read for every token, so that small models with large vocabularies "
               "gain most; logits are less exact. vLLM and the FP8 checkpoints that NVIDIA "
               "publishes leave it in bfloat16: compare with those at `auto`. See "
               "[models](models.md#8-bit-weights).",
           .allows_auto = true,
           .effective_with = {"model.quantization", {"fp8", "int8", "w8a8", "w4a16"}}}),
      row<&C::model, &C::Model::stage>(
          {.key = "model.stage",
           .type = text,
           .default_value = "none",
           .doc = "whether nodes without the checkpoint get a copy of it",
           .reference =
               "Whether nodes on other machines that lack the checkpoint get a copy "
               "([hosts](clusters.md#copies-of-the-checkpoint)). `none`: each must have it at "
               "`model.path`. `copy`: from the launcher's machine to `model.stage_folder`, to all "
               "nodes at once, where it stays for later jobs.",
           .choices = {"none", "copy"}}),
      row<&C::model, &C::Model::stage_folder>(
          {.key = "model.stage_folder",
           .type = text,
           .default_value = "auto",
           .doc = "the nodes' folder for copies, best on a disk of their own",
           .reference = "The folder of the nodes for copies, best on a disk of their own. `auto`: "
                        "`~/.cache/troupe/checkpoints`; `~/` is "
                        "the user's home there. Its path must be the same on all nodes."}),
      row<&C::cluster, &C::Cluster::launch>(
          {.key = "cluster.launch",
           .type = text,
           .default_value = "local",
           .doc = "how nodes are started: on this machine, by ssh, by Slurm, or by somebody else",
           .reference =
               "How nodes are started. `local`: one node, on this machine. `ssh`: one on each of "
               "`cluster.hosts`, by OpenSSH's client without questions. `slurm`: one on each node "
               "of the Slurm allocation that the launcher runs in. `join`: `cluster.nodes` come by "
               "themselves, each with the command that the launcher prints: a person's, or that of "
               "Kubernetes, PBS, LSF ([hosts](clusters.md)).",
           .choices = {"local", "ssh", "slurm", "join"}}),
      row<&C::cluster, &C::Cluster::hosts>(
          {.key = "cluster.hosts",
           .type = ValueType::text_list,
           .default_value = "[]",
           .doc = "the machines that ssh reaches: gpu01, user@gpu02:2222, ...",
           .reference = "The machines to reach by ssh, a node each: `HOST`, `USER@HOST` or with "
                        "`:PORT` behind, as the user's ssh configuration knows them. Workers fill "
                        "them in this order."}),
      row<&C::cluster, &C::Cluster::copy_program>(
          {.key = "cluster.copy_program",
           .type = ValueType::boolean,
           .default_value = "true",
           .doc = "whether hosts without this build of Troupe get a copy of it",
           .reference = "With `cluster.launch: ssh`, whether a host that has no program of this "
                        "build at the launcher's path gets a copy, into "
                        "`~/.cache/troupe/programs` there, which later jobs use "
                        "([hosts](clusters.md)). `false`: such a host is refused."}),
      row<&C::cluster, &C::Cluster::device>(
          {.key = "cluster.device",
           .type = text,
           .default_value = "auto",
           .doc = "what workers compute on; auto: GPUs where there are any, else the CPU",
           .reference =
               "What workers compute on. `auto`: GPUs where the part for them is installed "
               "(`scripts/build cuda`) and finds any, else the CPU. On other hosts than this "
               "machine `auto` is the CPU; with `cuda` each worker has a GPU of its host "
               "([GPUs over hosts](clusters.md#gpus)).",
           .choices = {"auto", "cpu", "cuda"}}),
      row<&C::cluster, &C::Cluster::devices_per_node>(
          {.key = "cluster.devices_per_node",
           .type = ValueType::integer,
           .default_value = "auto",
           .doc = "workers a node takes; auto: an equal share of what the parallel sizes need",
           .reference =
               "How many workers a node takes. `auto`: an equal share of what the parallel "
               "sizes need, rounded up. A smaller number than that is refused.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 1024}),
      row<&C::cluster, &C::Cluster::network>(
          {.key = "cluster.network",
           .type = text,
           .default_value = "auto",
           .doc = "the interface or address of this machine that the nodes reach",
           .reference = "The interface (`eth0`) or numeric address of this machine that the nodes "
                        "reach. `auto`: the one from which packets to the first host leave."}),
      row<&C::cluster, &C::Cluster::listen>(
          {.key = "cluster.listen",
           .type = text,
           .default_value = "",
           .doc = "HOST:PORT of this machine, where nodes join; port 0: the kernel's choice",
           .reference = "With `cluster.launch: join`, where nodes come to: `HOST:PORT`, an "
                        "interface, address or name of this machine that they reach. With port 0 "
                        "the kernel chooses, and the printed command tells."}),
      row<&C::cluster, &C::Cluster::nodes>(
          {.key = "cluster.nodes",
           .type = ValueType::integer,
           .default_value = "auto",
           .doc = "how many nodes are to join",
           .reference = "With `cluster.launch: join`, how many nodes are to come. Ranks fill them "
                        "in the order in which they do. Required there.",
           .allows_auto = true,
           .minimum = 1,
           .maximum = 4096}),
      row<&C::cluster, &C::Cluster::token_file>(
          {.key = "cluster.token_file",
           .type = text,
           .default_value = "",
           .doc = "the file whose key lets nodes join; made if there is none",
           .reference =
               "With `cluster.launch: join`, the file with the key that lets nodes in. The "
               "launcher makes it, with mode 0600, if there is none; each node needs it or "
               "a copy. A file that others can read is refused. Who has it can join the "
               "job, and pose as its launcher: use a new one for each job. Required there."}),
      row<&C::cluster, &C::Cluster::join_timeout>(
          {.key = "cluster.join_timeout",
           .type = ValueType::number,
           .default_value = "300",
           .doc = "how long to wait for nodes to join, in seconds",
           .reference =
               "With `cluster.launch: join`, how many seconds the launcher waits until all "
               "nodes have come.",
           .minimum = 1,
           .maximum = 86400}),
      row<&C::cluster, &C::Cluster::elastic>(
          {.key = "cluster.elastic",
           .type = ValueType::boolean,
           .default_value = "false",
           .doc = "whether a job goes on without replicas that find no node, until there is one",
           .reference =
               "Whether the job goes on with fewer replicas. A step domain (a replica, or those "
               "that share experts) that has lost a node and finds no other within 2 s is dropped "
               "as long as another one serves: its requests go to the others with the tokens that "
               "they have, and once there are nodes again it comes back "
               "([operations](operations.md#elastic-jobs)). Needs `restart.max` of 1 or more. With "
               "`cluster.devices_per_node`, the nodes of the start may be too few for all "
               "replicas, "
               "if one step domain has a place: the others come as nodes join."}),
      row<&C::cluster, &C::Cluster::spares>(
          {.key = "cluster.spares",
           .type = ValueType::integer,
           .default_value = "0",
           .doc = "nodes that are started and hold no workers until another one is lost",
           .reference =
               "How many of the nodes are spares: the last ones of `cluster.hosts` or of the Slurm "
               "allocation, or the last ones to join. They are started and looked at as the "
               "others, hold no workers, and take the ranks of a lost node at once, without a wait "
               "for it.",
           .minimum = 0,
           .maximum = 4096}),
      row<&C::cluster, &C::Cluster::ports>(
          {.key = "cluster.ports",
           .type = text,
           .default_value = "auto",
           .doc = "FIRST-LAST: the TCP ports that a firewall leaves open between hosts",
           .reference = "The TCP ports at which processes listen for those of other hosts: "
                        "`FIRST-LAST`. A host needs two for the launcher, one for the look at it "
                        "before the start, one for each worker and "
                        "executor, and for each worker up to five more: one for each of its groups "
                        "that lies on several hosts, and two for plans and results of an executor "
                        "elsewhere. `auto`: those that the kernel chooses. `cluster.listen` and "
                        "`metrics.port` are not bound to it."}),
  };
}

std::vector<KeySpec> job_rows() {
  constexpr auto text = ValueType::text;
  return {
      row<&C::job, &C::Job::input>(
          {.key = "job.input",
           .type = text,
           .default_value = "",
           .doc = "the requests, OpenAI batch format (JSON lines); also --input",
           .reference = "The requests, one JSON object a line ([operations](operations.md#input)). "
                        "Required for a run."}),
      row<&C::job, &C::Job::output>(
          {.key = "job.output",
           .type = text,
           .default_value = "",
           .doc = "where the answers go; also --output",
           .reference = "The file of the answers. Logs go to the folder of the same name with "
                        "`.job` behind it. Required for a run."}),
      row<&C::job, &C::Job::num_shards>(
          {.key = "job.num_shards",
           .type = ValueType::integer,
           .default_value = "1",
           .doc = "jobs that share out the input, each with an output of its own",
           .reference = "The number of jobs that share out the input, each with an output of its "
                        "own: this one answers every `num_shards`-th line. `launcher submit "
                        "--array` sets it. Two lines of different shards may have the same "
                        "`custom_id` without being told.",
           .minimum = 1,
           .maximum = 99999}),
      row<&C::job, &C::Job::shard_index>(
          {.key = "job.shard_index",
           .type = ValueType::integer,
           .default_value = "0",
           .doc = "which of the shards this job answers, counted from 0",
           .reference = "Which of the shards this job answers, counted from 0.",
           .minimum = 0,
           .maximum = 99998}),
      row<&C::job, &C::Job::resume>(
          {.key = "job.resume",
           .type = text,
           .default_value = "auto",
           .doc = "whether an output that has answers is gone on with; also --resume",
           .reference = "Whether an output that has answers is gone on with "
                        "([operations](operations.md#resuming)). `auto`: if nothing that changes "
                        "answers has changed since; `force`: whatever has changed; `never`: such "
                        "an output is refused.",
           .choices = {"auto", "never", "force"}}),
      row<&C::job, &C::Job::grace_seconds>(
          {.key = "job.grace_seconds",
           .type = ValueType::number,
           .default_value = "25",
           .doc = "after a signal, how long requests that run may take to finish",
           .reference =
               "After a signal, how long requests that run may take to finish. Then they "
               "are given up: not written, and run again by the job that resumes. The default "
               "leaves room before the SIGKILL that Slurm sends 30 s after its SIGTERM "
               "(KillWait).",
           .minimum = 0,
           .maximum = 86400}),
      row<&C::job, &C::Job::disk_full_wait_seconds>(
          {.key = "job.disk_full_wait_seconds",
           .type = ValueType::integer,
           .default_value = "300",
           .doc = "how long the job waits for room when the disk of its output is full",
           .reference = "How long the job waits for room when the disk of its output is full, or "
                        "a quota is used up ([operations](operations.md#a-full-disk)). `0`: it "
                        "ends at once, exit 3.",
           .minimum = 0,
           .maximum = 604800}),
      row<&C::job, &C::Job::ordered>(
          {.key = "job.ordered",
           .type = ValueType::boolean,
           .default_value = "false",
           .doc = "answers stand in the order of the requests, not in that of their finishing",
           .reference = "Whether answers stand in the output in the order of their requests. "
                        "`false`: in the order they finish. With `true` an answer waits in memory, "
                        "with at most 64 MiB of others, for those before it; what waits when a job "
                        "breaks off is computed again by the one that resumes."}),
      row<&C::job, &C::Job::max_failures>(
          {.key = "job.max_failures",
           .type = ValueType::integer,
           .default_value = "off",
           .doc = "with more error lines than these the job stops; off: it never does",
           .reference = "With more error lines than these in the output the job stops, exit 3. "
                        "`off`: it never does.",
           .allows_auto = true,
           .auto_word = "off",
           .minimum = 0,
           .maximum = 9007199254740991.0}),
      row<&C::job, &C::Job::seed>(
          {.key = "job.seed",
           .type = ValueType::integer,
           .default_value = "0",
           .doc = "with the custom_id, the seed of requests that name none",
           .reference = "With a request's `custom_id` it gives the seed of a request that names "
                        "none, so a job run twice gives the same answers.",
           .minimum = 0,
           .maximum = 9007199254740991.0}),
      row<&C::restart, &C::Restart::max>(
          {.key = "restart.max",
           .type = ValueType::integer,
           .default_value = "5",
           .doc = "how often the job goes on by itself after a loss; 0: never",
           .reference =
               "How often, within `restart.per_minutes`, the job goes on by itself after it has "
               "lost a process or a node ([operations](operations.md#losses)). One more, and the "
               "job ends with exit code 3; the same command resumes it. `0`: each loss does that.",
           .minimum = 0,
           .maximum = 1e6}),
      row<&C::restart, &C::Restart::per_minutes>(
          {.key = "restart.per_minutes",
           .type = ValueType::integer,
           .default_value = "10",
           .doc = "the minutes within which restart.max counts",
           .reference = "The minutes within which `restart.max` counts.",
           .minimum = 1,
           .maximum = 1e6}),
      row<&C::restart, &C::Restart::wait_seconds>(
          {.key = "restart.wait_seconds",
           .type = ValueType::integer,
           .default_value = "300",
           .doc = "how long a job that lost a node waits for one in its place",
           .reference =
               "How long, in seconds, a job that has lost a node and has no room on the others "
               "waits "
               "for a node in its place: its agent is started again every 2 s at most, as it was "
               "at first "
               "(`cluster.launch`), or another one joins. Then the job ends with exit code 3; the "
               "same command resumes it.",
           .minimum = 0,
           .maximum = 1e6}),
      row<&C::metrics, &C::Metrics::port>(
          {.key = "metrics.port",
           .type = ValueType::integer,
           .default_value = "off",
           .doc = "where Prometheus finds the job's metrics; 0: a port of the kernel's choice",
           .reference = "The port at which the job tells its metrics while it runs, in Prometheus' "
                        "text form, at `/metrics` ([operations](operations.md#metrics)). `off`: "
                        "nowhere. With `0` the kernel chooses a port; the address that came of it "
                        "stands in the log and in `OUTPUT.job/metrics.txt`.",
           .allows_auto = true,
           .auto_word = "off",
           .minimum = 0,
           .maximum = 65535}),
      row<&C::metrics, &C::Metrics::address>(
          {.key = "metrics.address",
           .type = text,
           .default_value = "127.0.0.1",
           .doc = "the address of this machine that metrics are given at; 0.0.0.0: all",
           .reference = "The address of this machine that the port is opened at. Nobody is asked "
                        "for a password: an address that others reach gives them the metrics, "
                        "among them the model's name, but no text of any request."}),
  };
}

}  // namespace troupe::schema
