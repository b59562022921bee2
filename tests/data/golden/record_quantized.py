"""Quantises tiny checkpoints by `launcher quantize`, and records what other readers make of them.

Each folder quantized/troupe-* gets the files that Troupe wrote, and logits.safetensors: the logits of
transformers in float32 with the bfloat16 numbers that compressed-tensors makes of the codes. transformers
also loads each folder by itself, where it can, and must come to the same logits. It cannot load int8
experts (it looks for packed ones), and leaves experts that stay as they are beside packed ones random.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.14.0 transformers==5.17.0 compressed-tensors==0.19.0 safetensors==0.8.0
    /tmp/venv/bin/python tests/data/golden/record_quantized.py build/release/bin/launcher TOKENIZER TEXT

TOKENIZER: a tokenizer.json of at most 512 tokens; TEXT: what calibrates, 3,000 tokens or more.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, disable_quantization
from compressed_tensors.utils.match import match_targets
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

HERE = pathlib.Path(__file__).parent
LENGTHS = (1, 16, 33, 120)
COMPANIONS = ("", "_packed", "_scale", "_global_scale", "_shape")
KEPT = ["--keep", "auto", "--keep-budget", "30%"]
WAYS = {
    "troupe-fp8": ("llama-a", ["--scheme", "fp8"]),
    "troupe-int8-smoothquant": ("llama-a", ["--scheme", "int8", "--method", "smoothquant"]),
    "troupe-w4a16": ("llama-a", ["--scheme", "w4a16", "--group-size", "64"]),  # and 32, of 160 columns
    "troupe-w4a16-gptq": ("llama-a", ["--scheme", "w4a16", "--method", "gptq", "--act-order", *KEPT]),
    "troupe-mxfp4": ("llama-a", ["--scheme", "mxfp4"]),
    "troupe-nvfp4": ("llama-a", ["--scheme", "nvfp4"]),
    "troupe-moe-fp8": ("qwen3moe-a", ["--scheme", "fp8", *KEPT]),
    "troupe-moe-int8": ("qwen3moe-a", ["--scheme", "int8"]),
    "troupe-moe-w4a16-awq": ("qwen3moe-a", ["--scheme", "w4a16", "--method", "awq", *KEPT]),
}
NOT_LOADED = {"troupe-moe-int8", "troupe-moe-w4a16-awq"}


def quantise(launcher, tokenizer, text, name):
    """Makes the folder of that name; returns it."""
    model, how = WAYS[name]
    folder = HERE / "quantized" / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        for file in ("config.json", "model.safetensors"):
            shutil.copy(HERE / model / file, temporary)
        shutil.copy(tokenizer, pathlib.Path(temporary) / "tokenizer.json")
        if "--method" in how:
            how = [*how, "--calibrate", text, "--calibrate-windows", "24", "--calibrate-length", "128"]
        subprocess.run([launcher, "quantize", "-q", "-m", temporary, "-o", folder, *how], check=True,
                       stdout=subprocess.DEVNULL)
    (folder / "tokenizer.json").unlink()
    (folder / "sensitive_layers.json").unlink()
    return folder


def decoded(folder, config):
    """The tensors of a folder, with the numbers that compressed-tensors makes of codes."""
    stored = {}
    for file in sorted(folder.glob("model-*.safetensors")):
        stored |= load_file(file)
    targets = {target: scheme for scheme in config.config_groups.values() for target in scheme.targets}
    tensors = {}
    for name in [name for name in stored if name.endswith("weight_scale")]:
        module = name.removesuffix(".weight_scale")
        scheme = targets[match_targets(module, torch.nn.Linear(1, 1), targets)[0]]
        codes = {"weight" + end: stored.pop(f"{module}.weight{end}") for end in COMPANIONS
                 if f"{module}.weight{end}" in stored}
        compressor = BaseCompressor.get_value_from_registry(scheme.format)
        tensors[f"{module}.weight"] = compressor.decompress(codes, scheme)["weight"].to(torch.bfloat16)
    return stored | tensors


def logits_of(model):
    """The tensors of logits.safetensors."""
    model.eval()
    tensors = {}
    generator = torch.Generator().manual_seed(1)
    for length in LENGTHS:
        ids = torch.randint(0, 509, (1, length), generator=generator)
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0].float()
        logprobs = logits.log_softmax(-1)
        best = logprobs.topk(20, dim=-1)
        name = f"len{length}"
        tensors[f"{name}.input_ids"] = ids[0].int()
        tensors[f"{name}.last_logits"] = logits[-1].clone()
        tensors[f"{name}.top_ids"] = best.indices.int()
        tensors[f"{name}.top_logprobs"] = best.values
        if length > 1:
            tensors[f"{name}.prompt_logprobs"] = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return tensors


def difference(one, other):
    return max((one[key] - other[key]).abs().max().item() for key in one
               if key.endswith(("last_logits", "prompt_logprobs")))


def load(folder, **more):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **more)


def record(folder):
    config = json.loads((folder / "config.json").read_text())
    quantization = QuantizationConfig.model_validate(config.pop("quantization_config"))
    with tempfile.TemporaryDirectory() as temporary:
        save_file(decoded(folder, quantization), f"{temporary}/model.safetensors", {"format": "pt"})
        (pathlib.Path(temporary) / "config.json").write_text(json.dumps(config))
        expected = logits_of(load(temporary, dtype=torch.float32))
        rounded = logits_of(load(temporary, dtype=torch.bfloat16))
    save_file(expected, folder / "logits.safetensors")
    figures = [f"bf16 of its own {difference(expected, rounded):.3f}"]
    if folder.name not in NOT_LOADED:
        model = load(folder, dtype=torch.bfloat16, quantization_config=CompressedTensorsConfig(dequantize=True))
        model.float()
        figures.append(f"activations quantised {difference(expected, logits_of(model)):.3f}")
        model.apply(disable_quantization)
        loaded = difference(expected, logits_of(model))
        assert loaded < 1e-4, (folder.name, loaded)
        figures.append(f"loaded by itself {loaded:.1e}")
    print(f"{folder.name}: {', '.join(figures)}", flush=True)


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in WAYS:
        record(quantise(*sys.argv[1:4], name))


if __name__ == "__main__":
    main()
