"""Makes the tiny DeepSeek-V3.2 checkpoint of this folder and records what transformers computes.

Random weights in bfloat16; logits and greedy answers in float32, eager attention. index_topk is 24, so
that longer prompts leave tokens out. The seed is the first whose index scores decide every choice by
at least MIN_INDEX_GAP and whose router by MIN_ROUTER_GAP: rounding then changes no choice.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install 'transformers==5.24.0' torch safetensors
    /tmp/venv/bin/python tests/data/golden/deepseek32-a/record.py
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as modeling

HERE = pathlib.Path(__file__).parent
MIN_INDEX_GAP = 8e-6
MIN_ROUTER_GAP = 2e-5
LENGTHS = (1, 5, 16, 33, 64, 120)
OUTPUT = 48

CONFIG = dict(
    vocab_size=512, hidden_size=64, intermediate_size=144, moe_intermediate_size=32,
    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1,
    n_routed_experts=16, routed_scaling_factor=2.5, kv_lora_rank=32, q_lora_rank=48,
    qk_rope_head_dim=16, v_head_dim=32, qk_nope_head_dim=32, n_group=4, topk_group=2,
    num_experts_per_tok=4, norm_topk_prob=True, max_position_embeddings=2048,
    first_k_dense_replace=1, index_topk=24, index_head_dim=32, index_n_heads=8,
    bos_token_id=509, eos_token_id=511, pad_token_id=509, rms_norm_eps=1e-6,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    attn_implementation="eager", dtype="bfloat16")


class Gaps:
    """The smallest distances between what indexers and routers chose and what they left out."""

    def __init__(self):
        self.index = self.router = float("inf")

    def watch(self, model):
        gaps, topk = self, torch.Tensor.topk
        original = modeling.DeepseekV32Indexer.forward

        def forward(indexer, *args, **kwargs):
            def watched(scores, k, dim=-1, **more):
                values = scores.sort(dim=dim, descending=True).values
                if values.shape[-1] > k:
                    gap = values[..., k - 1] - values[..., k]
                    seen = values[..., k] > -1e30  # not behind the row
                    if seen.any():
                        gaps.index = min(gaps.index, gap[seen].min().item())
                return topk(scores, k, dim=dim, **more)

            torch.Tensor.topk = watched
            try:
                return original(indexer, *args, **kwargs)
            finally:
                torch.Tensor.topk = topk

        modeling.DeepseekV32Indexer.forward = forward
        for layer in model.model.layers:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.register_forward_hook(lambda gate, _, out: self.see_router(gate, out))
        return original

    def see_router(self, gate, out):
        logits = out[0] if isinstance(out, tuple) else out
        scores = logits.float().sigmoid() + gate.e_score_correction_bias
        groups = scores.view(-1, CONFIG["n_group"], scores.shape[-1] // CONFIG["n_group"])
        best = groups.topk(2, dim=-1).values.sum(-1).sort(-1, descending=True).values
        self.router = min(self.router, (best[:, 1] - best[:, 2]).min().item())
        chosen = groups.topk(2, dim=-1).values.sum(-1).topk(CONFIG["topk_group"], dim=-1).indices
        kept = torch.gather(groups, 1, chosen[..., None].expand(-1, -1, groups.shape[-1])).flatten(1)
        order = kept.sort(-1, descending=True).values
        k = CONFIG["num_experts_per_tok"]
        self.router = min(self.router, (order[:, k - 1] - order[:, k]).min().item())


def make(seed, folder):
    """Writes a random checkpoint; matrices are large enough for attention and logits to be uneven."""
    generator = torch.Generator().manual_seed(seed)
    model = DeepseekV32ForCausalLM(DeepseekV32Config(**CONFIG))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                mean = 0.0 if name.endswith("bias") else 1.0
                weight.copy_(mean + 0.2 * torch.randn(weight.shape, generator=generator))
            else:
                std = 1.0 / weight.shape[-1] ** 0.5
                weight.copy_(std * torch.randn(weight.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    model.to(torch.bfloat16)
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.e_score_correction_bias = layer.mlp.gate.e_score_correction_bias.float()
    model.save_pretrained(folder)


def answers(model, gaps):
    """Returns the tensors of logits.safetensors and the lines of greedy.jsonl."""
    tensors, lines = {}, []
    generator = torch.Generator().manual_seed(1)
    for length in LENGTHS:
        name = f"len{length}"
        ids = torch.randint(0, 509, (1, length), generator=generator)
        logits = model(ids, use_cache=False).logits[0]
        logprobs = logits.log_softmax(-1)
        best = logprobs.topk(20, dim=-1)
        tensors[f"{name}.input_ids"] = ids[0].int()
        tensors[f"{name}.last_logits"] = logits[-1].clone()
        tensors[f"{name}.top_ids"] = best.indices.int()
        tensors[f"{name}.top_logprobs"] = best.values
        if length > 1:
            tensors[f"{name}.prompt_logprobs"] = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0]
        known, found, distances = ids, [], []
        for _ in range(OUTPUT):
            if gaps.index < MIN_INDEX_GAP or gaps.router < MIN_ROUTER_GAP:
                return {}, []
            last = model(known, use_cache=False).logits[0, -1]
            two = last.topk(2)
            distances.append((two.values[0] - two.values[1]).item())
            found.append(last.log_softmax(-1).max().item())
            known = torch.cat([known, two.indices[None, :1]], dim=1)
        lines.append({
            "id": name, "prompt_ids": ids[0].tolist(), "output_ids": known[0, length:].tolist(),
            "min_gap": round(min(distances), 6), "logprobs": [round(x, 6) for x in found],
            "gaps": [round(x, 6) for x in distances], "min_router_gap": gaps.router})
    return tensors, lines


def attempt(seed):
    make(seed, HERE)
    model = DeepseekV32ForCausalLM.from_pretrained(HERE, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    gaps = Gaps()
    original = gaps.watch(model)
    try:
        with torch.no_grad():
            tensors, lines = answers(model, gaps)
    finally:
        modeling.DeepseekV32Indexer.forward = original
    print(f"seed {seed}: index gap {gaps.index:.1e}, router gap {gaps.router:.1e}", flush=True)
    if not lines or gaps.index < MIN_INDEX_GAP or gaps.router < MIN_ROUTER_GAP:
        return False
    save_file(tensors, HERE / "logits.safetensors")
    (HERE / "greedy.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return True


def write_published_spelling():
    """Writes config.v4.json: the same config in the spelling of the published checkpoints."""
    config = json.loads((HERE / "config.json").read_text())
    for key in ("dtype", "head_dim", "layer_types", "mlp_layer_types", "qk_head_dim"):
        del config[key]
    rope = config.pop("rope_parameters")
    config |= {"torch_dtype": "bfloat16", "rope_theta": rope["rope_theta"], "rope_scaling": None,
               "scoring_func": "sigmoid", "topk_method": "noaux_tc", "transformers_version": "4.44.2"}
    (HERE / "config.v4.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    seed = next(seed for seed in range(100) if attempt(seed))
    write_published_spelling()
    dtypes = {str(tensor.dtype) for tensor in load_file(HERE / "model.safetensors").values()}
    print(f"seed {seed}, stored as {sorted(dtypes)}")


if __name__ == "__main__":
    main()
