"""Writes tiny GGUF files by the library of the format, and the numbers that it makes of them.

Each folder gguf/NAME gets model.gguf, the config.json of the model it is made of, and numbers.safetensors:
its tensors by Hugging Face's names, as the library decodes them to float32. Names are the library's
(TensorNameMap), and rows of llama's queries and keys are in the order of llama.cpp's convert_hf_to_gguf.py.
Blocks of K, which the library only decodes, are made by GGML's ggml-quants.c.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install gguf==0.17.1 numpy==2.4.6
    pip download --no-deps ggml-python==0.0.45 -d /tmp && tar -C /tmp -xzf /tmp/ggml_python-0.0.45.tar.gz
    (cd /tmp/ggml_python-0.0.45/vendor/ggml/src && DEFINES='-DGGML_VERSION="x" -DGGML_COMMIT="x" -D_GNU_SOURCE' &&
     gcc -c -O2 -fPIC -I. -I../include $DEFINES ggml.c ggml-quants.c ggml-alloc.c &&
     g++ -c -O2 -fPIC -I. -I../include $DEFINES ggml-threading.cpp ggml-backend.cpp ggml-backend-meta.cpp gguf.cpp &&
     g++ -shared -o /tmp/libggml.so ggml.o ggml-*.o gguf.o)
    /tmp/venv/bin/python tests/data/golden/record_gguf.py /tmp/libggml.so
"""

import ctypes
import json
import pathlib
import re
import struct
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

HERE = pathlib.Path(__file__).parent
K_BLOCKS = {Type.Q4_K: ("quantize_q4_K", 144), Type.Q5_K: ("quantize_q5_K", 176), Type.Q6_K: ("quantize_q6_K", 210)}


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
            numbers = bits.view(np.float32)
        else:
            numbers = np.frombuffer(data[begin:end], {"F32": np.float32, "F16": np.float16}[entry["dtype"]])
        tensors[name] = numbers.astype(np.float32).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, numbers in tensors.items():
        header[name] = {"dtype": "F32", "shape": numbers.shape, "data_offsets": [at, at + numbers.nbytes]}
        at += numbers.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(n.tobytes() for n in tensors.values()))


def interleaved(rows, heads):
    """convert_hf_to_gguf.py, LlamaModel.permute."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def in_order(rows, heads):
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def blocks_of_k(kind, numbers):
    name, size = K_BLOCKS[kind]
    quantize = getattr(ctypes.CDLL(sys.argv[1]), name)
    quantize.restype = ctypes.c_size_t
    numbers = np.ascontiguousarray(numbers, np.float32)
    blocks = np.zeros((numbers.shape[0], numbers.shape[1] // 256 * size), np.uint8)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (numbers, blocks)]
    written = quantize(*pointers, ctypes.c_int64(numbers.shape[0]), ctypes.c_int64(numbers.shape[1]), None)
    assert written == blocks.nbytes
    return blocks


def write(name, architecture, config, tensors, type_of, parts=1):
    """tensors: by Hugging Face's names; type_of(GGUF's name) is how matrices are stored."""
    folder = HERE / "gguf" / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    number = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    experts = {}
    stacked = {}
    for hf_name, numbers in tensors.items():
        found = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", hf_name)
        if found:
            experts.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = (hf_name, numbers)
        else:
            stacked[hf_name] = numbers
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    writer.add_name(name)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_token_list(["a", "b"])
    writer.add_array("troupe.numbers", [1, 2, 3])
    decoded = {}

    def add(gguf_name, numbers):
        """Returns the numbers as they are stored."""
        kind = type_of(gguf_name) if numbers.ndim > 1 else Type.F32
        if kind in K_BLOCKS and numbers.shape[-1] % 256 == 0:
            stored = blocks_of_k(kind, numbers)
        else:
            if kind in K_BLOCKS or numbers.shape[-1] % 32 != 0:
                kind = Type.F16
            stored = quants.quantize(numbers, kind)
        writer.add_tensor(gguf_name, stored, raw_dtype=kind)
        return quants.dequantize(stored, kind).astype(np.float32)

    for hf_name, numbers in stacked.items():
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        heads_of = {"attn_q.weight": heads, "attn_k.weight": kv_heads}.get(gguf_name.split(".", 2)[-1])
        if architecture == "llama" and heads_of:
            decoded[hf_name] = in_order(add(gguf_name, interleaved(numbers, heads_of)), heads_of)
        else:
            decoded[hf_name] = add(gguf_name, numbers)
    for hf_name, of in experts.items():
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight",))
        found = add(gguf_name, np.stack([of[i][1] for i in range(len(of))]))
        for i in range(len(of)):
            decoded[of[i][0]] = found[i]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_safetensors(folder / "numbers.safetensors", {n: np.ascontiguousarray(decoded[n]) for n in decoded})
    print(name, (folder / "model.gguf").stat().st_size, "bytes")


def golden(name):
    return json.loads((HERE / name / "config.json").read_text()), read_safetensors(HERE / name / "model.safetensors")


config, tensors = golden("llama-a")
# Queries and keys in all types that rows may be reordered in.
plain = {"blk.1.attn_q": Type.F16, "blk.1.attn_k": Type.BF16, "blk.2.attn_q": Type.F32, "blk.2.attn_v": Type.F16}
write("llama-q8_0", "llama", config, tensors, lambda n: plain.get(n.removesuffix(".weight"), Type.Q8_0))
config, tensors = golden("qwen3moe-a")
# llama.cpp's qwen3moe has no dense layers: the second one gets the first one's experts.
config["mlp_only_layers"] = []
for name in [n for n in tensors if n.startswith("model.layers.0.mlp.")]:
    tensors.setdefault(name.replace("layers.0", "layers.1"), tensors[name])
tensors = {n: t for n, t in tensors.items() if not re.search(r"\.mlp\.(gate|up|down)_proj", n)}
write("qwen3moe-q4_0", "qwen3moe", config, tensors,
      lambda n: Type.F32 if "gate_inp" in n else Type.Q8_0 if "token_embd" in n else Type.Q4_0)

config, tensors = golden("mixtral-a")
tensors["model.layers.0.self_attn.v_proj.weight"][0, :32] = -0.25  # a group without steps
kinds = {"blk.0": Type.Q4_1, "blk.1": Type.Q5_1}
write("mixtral-q5_0", "llama", config, tensors, lambda n: Type.F32 if "gate_inp" in n else kinds.get(n[:5], Type.Q5_0))

config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256, "intermediate_size": 256,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 128,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "torch_dtype": "bfloat16", "attention_bias": False}
engine = np.random.default_rng(2)
shapes = {"model.embed_tokens.weight": (128, 256), "model.norm.weight": (256,), "lm_head.weight": (128, 256)}
for layer in range(1):
    for part, shape in {"input_layernorm": (256,), "post_attention_layernorm": (256,), "self_attn.q_proj": (128, 256),
                        "self_attn.k_proj": (64, 256), "self_attn.v_proj": (64, 256), "self_attn.o_proj": (256, 128),
                        "self_attn.q_norm": (64,), "self_attn.k_norm": (64,), "mlp.gate_proj": (256, 256),
                        "mlp.up_proj": (256, 256), "mlp.down_proj": (256, 256)}.items():
        shapes[f"model.layers.{layer}.{part}.weight"] = shape
tensors = {n: (engine.normal(1.0 if len(s) == 1 else 0.0, 0.05, s)).astype(np.float32) for n, s in shapes.items()}
tensors["model.layers.0.mlp.up_proj.weight"][0, :64] = -0.25  # groups without steps
write("qwen3-q4_k_m", "qwen3", config, tensors,
      lambda n: Type.Q6_K if n.startswith("output") or "ffn_down" in n else Type.Q5_K if "attn_k" in n else Type.Q4_K)
