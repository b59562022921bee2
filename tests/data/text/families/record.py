"""Records what transformers 4.57 makes of tokenizer_config.json variants, for families.test.cpp.

Trains one small tokenizer per style, puts each variant of the configuration files beside it, loads
the folder with AutoTokenizer and writes prompts' ids, answers' texts and EOS ids to variants.jsonl.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install 'transformers==4.57.6' sentencepiece protobuf
    /tmp/venv/bin/python tests/data/text/families/record.py
"""

import json
import logging
import pathlib
import random
import tempfile

import sentencepiece
import tokenizers
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = HERE.parents[1] / "batch" / "batch-64.jsonl"
transformers.logging.set_verbosity(logging.CRITICAL)

LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_REGEX = LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK3_REGEX = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

# GPT-OSS and others: words end where the case changes.
O200K_REGEX = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# Phi-4 and OLMo 2.
CL100K_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)

TEXTS = [
    "", " ", "  ", "once upon a", "Once upon a time, there was a king.", " leading", "trailing ",
    "two  spaces   three", "\n", "a\n\nb\n", "\ttab", "it's we'll I'M", "1234567 3.14 ½",
    "世 A fox", "世界, こんにちは!", "naïve café e\u0301", "🦊 fox 🦊🦊", "x▁y ▁z", "<s>", "<s> hi",
    "a</s>b", "a </s> b", "<|im_start|>user\nhi<|im_end|>\n", "<|begin_of_text|>hi<|eot_id|>",
    "<｜begin▁of▁sentence｜>hi<｜end▁of▁sentence｜>", "<|endoftext|>", "<unk>", "<bos>x<eos>",
    " [INST] hi [/INST]", "<extra>  after", "before  <extra>", "def f(x):\n    return x + 1\n",
    "สวัสดี ๑๒๓", "ⓐswordⒶ", "a sword. swords sword_ sword\u200d sword\u0903 sword\u00b2 \U0001f130sword \u24b5sword", "A\u00a0B\u3000C", "don't!!! (really?)",
]
PROMPTS = ["once upon a", "The", "世", "<s>", "", "hi </s>", "The king said: ", "\n"]
ANSWERS = [" the king", "the", "  two", "世界", "\n\nok", "</s>", " 🦊", "<|im_end|>"]


def corpus():
    texts = []
    for line in CORPUS.read_text().splitlines():
        body = json.loads(line)["body"]
        for message in body.get("messages", []):
            texts.append(message["content"])
        if isinstance(body.get("prompt"), str):
            texts.append(body["prompt"])
    return texts


def byte_level(pre_tokenizer, specials, normalizer=None, post_processor=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 250, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([tokenizers.AddedToken(s, special=True, normalized=False) for s in specials])
    tokenizer.post_processor = post_processor(tokenizer) if post_processor else processors.ByteLevel(trim_offsets=False)
    return json.loads(tokenizer.to_str())


def split_bytes(*regexes):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bos_template(bos):
    def make(tokenizer):
        return processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                special_tokens=[(bos, tokenizer.token_to_id(bos))])])
    return make


def train_sentencepiece(folder):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_prefix=str(folder / "spm"), vocab_size=560,
        model_type="bpe", byte_fallback=True, character_coverage=0.98, num_threads=1,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2)
    return (folder / "spm.model").read_bytes()


def sentencepiece_style(folder, model, **options):
    (folder / "tokenizer.model").write_bytes(model)
    slow = transformers.LlamaTokenizer(str(folder / "tokenizer.model"), **options)
    fast = transformers.convert_slow_tokenizer.convert_slow_tokenizer(slow)
    return json.loads(fast.to_str())


def gemma_style(style_json):
    """A SentencePiece model as Gemma's tokenizer.json has it."""
    out = json.loads(json.dumps(style_json))
    out["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    out["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                            "invert": False}
    out["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return out


def styles(folder, model):
    llama3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    qwen = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    deepseek = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    made = {
        "spm-prepend": sentencepiece_style(folder, model, legacy=True),
        "spm-metaspace": sentencepiece_style(folder, model, legacy=False),
        "llama3": byte_level(split_bytes(LLAMA3_REGEX), llama3, post_processor=bos_template("<|begin_of_text|>"),
                             ignore_merges=True),
        "qwen": byte_level(split_bytes(QWEN_REGEX), qwen, normalizer=normalizers.NFC()),
        "deepseek2": byte_level(
            pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"),
                pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
                pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"),
                pre_tokenizers.Split(Regex("[一-龥ࠀ-一가-퟿]+"), "isolated"),
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            deepseek[:2]),
        "deepseek3": byte_level(
            split_bytes(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_REGEX), deepseek,
            normalizer=normalizers.Sequence([])),
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<|endoftext|>"]),
        "merged": byte_level(
            pre_tokenizers.Sequence([
                pre_tokenizers.Split(" ", "merged_with_next"),
                pre_tokenizers.Split(Regex(r"\n+"), "merged_with_previous"),
                pre_tokenizers.Split(Regex(r"[0-9]"), "contiguous"),
                pre_tokenizers.Split(Regex(r"\w+"), "merged_with_previous", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            ["<|endoftext|>"]),
        "o200k": byte_level(split_bytes(O200K_REGEX),
                            ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|start|>", "<|end|>"]),
        "cl100k": byte_level(split_bytes(CL100K_REGEX), ["<|endoftext|>", "<|im_end|>"]),
        "falcon": byte_level(
            pre_tokenizers.Sequence([
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
            ["<|endoftext|>"]),
        "starcoder2": byte_level(
            pre_tokenizers.Sequence([
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False)]),
            ["<|endoftext|>"]),
    }
    made["gemma"] = gemma_style(made["spm-metaspace"])
    return made


def added(content, **flags):
    return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": True,
            "rstrip": False, "single_word": False} | flags


def decoder_entry(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": True} | flags


def added_decoder(style_json, **changes):
    entries = {}
    for token in style_json["added_tokens"]:
        entry = {k: v for k, v in token.items() if k != "id"}
        entries[str(token["id"])] = entry | changes.get(token["content"], {})
    return entries


def variants(style):
    """Rows (name, style, files): files are the contents of the JSON files beside tokenizer.json."""
    spm_tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    llama = {"tokenizer_class": "LlamaTokenizer", "legacy": False} | spm_tokens
    dict_tokens = {k: added(v) for k, v in spm_tokens.items()}
    llama3_tokens = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    llama3 = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True,
              "added_tokens_decoder": added_decoder(style["llama3"])}
    qwen_decoder = {"added_tokens_decoder": added_decoder(style["qwen"])}
    qwen = {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "bos_token": None,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    deepseek_tokens = {"bos_token": added("<｜begin▁of▁sentence｜>"), "eos_token": added("<｜end▁of▁sentence｜>"),
                       "pad_token": added("<｜end▁of▁sentence｜>"), "unk_token": None}
    deepseek = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": False,
                "legacy": True, "sp_model_kwargs": {}} | deepseek_tokens
    no_unk = {k: v for k, v in deepseek.items() if k != "unk_token"}

    def row(name, style_name, tokenizer_config, **files):
        return (name, style_name, ({"tokenizer_config.json": tokenizer_config} if tokenizer_config is not None else {})
                | {f"{key}.json": value for key, value in files.items()})

    return [
        row("llama-1", "spm-prepend", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
                                       "add_eos_token": False} | dict_tokens),
        row("llama-1 without a class", "spm-prepend", {"bos_token": "<s>", "eos_token": "</s>"},
            config={"model_type": "llama"}),
        row("llama-1 without any tokenizer_config", "spm-prepend", None, config={"model_type": "llama"}),
        row("llama-1 with special_tokens_map", "spm-prepend", {"tokenizer_class": "LlamaTokenizer"},
            special_tokens_map={"bos_token": "</s>", "eos_token": {"content": "<s>", "lstrip": False, "normalized": True,
                                                                   "rstrip": False, "single_word": False}}),
        row("llama-2", "spm-prepend", llama | dict_tokens | {"add_bos_token": True, "add_eos_token": False,
                                                             "padding_side": "right"}),
        row("llama-2 legacy", "spm-prepend", llama | {"legacy": True}),
        row("llama-2 with eos", "spm-prepend", llama | {"add_eos_token": True}),
        row("llama-2 without bos", "spm-prepend", llama | {"add_bos_token": False}),
        row("llama-2 with null flags", "spm-prepend", llama | {"add_bos_token": None, "add_eos_token": None}),
        row("llama-2 without bos, with eos", "spm-prepend", llama | {"add_bos_token": False, "add_eos_token": True}),
        row("llama-2 whose bos is null", "spm-prepend", llama | {"bos_token": None}),
        row("llama-2 whose bos is null and not added", "spm-prepend", llama | {"bos_token": None, "add_bos_token": False}),
        row("llama-2 with another eos", "spm-prepend", llama | {"eos_token": "<s>"}),
        row("llama-2 as a plain class", "spm-prepend", llama | {"tokenizer_class": "PreTrainedTokenizerFast",
                                                               "add_bos_token": True}),
        row("llama-2 metaspace", "spm-metaspace", llama | {"tokenizer_class": "LlamaTokenizerFast"}),
        row("llama-2 metaspace with chat tokens", "spm-metaspace", llama | {
            "added_tokens_decoder": added_decoder(style["spm-metaspace"]) | {
                "560": decoder_entry("<|im_start|>"), "561": decoder_entry("<|im_end|>")},
            "eos_token": "<|im_end|>"}),
        row("code llama", "spm-prepend", llama | {"tokenizer_class": "CodeLlamaTokenizer", "additional_special_tokens": [],
                                                  "prefix_token": None, "middle_token": None, "suffix_token": None,
                                                  "eot_token": None, "fill_token": None}),
        row("gemma", "spm-metaspace", {"tokenizer_class": "GemmaTokenizer", "add_eos_token": True}),
        row("llama-3", "llama3", llama3 | llama3_tokens),
        row("llama-3 instruct", "llama3", llama3 | llama3_tokens | {"eos_token": "<|eot_id|>"}),
        row("llama-3 asked for no bos", "llama3", llama3 | llama3_tokens | {"add_bos_token": False, "add_eos_token": True}),
        row("llama-3 as the Llama class", "llama3", llama3 | llama3_tokens | {"tokenizer_class": "LlamaTokenizerFast",
                                                                              "add_bos_token": False}),
        row("llama-3 with flags of its own", "llama3", llama3 | llama3_tokens | {
            "added_tokens_decoder": added_decoder(style["llama3"], **{"<|eot_id|>": {"rstrip": True, "lstrip": True}})
            | {"900": decoder_entry("<extra>", special=False, rstrip=True)}}),
        row("llama-3 with a token that is a word", "llama3", llama3 | llama3_tokens | {
            "added_tokens_decoder": added_decoder(style["llama3"])
            | {"900": decoder_entry("sword", special=False, single_word=True)}}),
        row("mistral 0.1", "spm-prepend", llama | {"legacy": True, "add_bos_token": True, "add_eos_token": False,
                                                   "additional_special_tokens": [], "pad_token": None,
                                                   "sp_model_kwargs": {}, "spaces_between_special_tokens": False,
                                                   "use_default_system_prompt": True,
                                                   "added_tokens_decoder": added_decoder(style["spm-prepend"])}),
        row("mistral without a class", "spm-prepend", None, config={"model_type": "mistral"}),
        row("mistral 0.3", "spm-metaspace", llama | {"add_prefix_space": True, "add_bos_token": True, "add_eos_token": False,
                                                     "added_tokens_decoder": added_decoder(style["spm-metaspace"])}),
        row("mistral 0.3 without a prefix", "spm-metaspace", llama | {"add_prefix_space": False}),
        row("mistral 0.3 with the other normalizer", "spm-prepend", llama | {"add_prefix_space": True}),
        row("mistral legacy with the other pre-tokenizer", "spm-metaspace", llama | {"legacy": True, "add_prefix_space": True}),
        row("mistral legacy without a prefix", "spm-prepend", llama | {"legacy": True, "add_prefix_space": False}),
        row("mistral nemo", "llama3", {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True,
                                       "add_eos_token": False, "legacy": False} | llama3_tokens),
        row("mixtral", "spm-prepend", llama | {"legacy": True, "add_prefix_space": None}),
        row("mixtral without a class", "spm-prepend", {"bos_token": "<s>"}, config={"model_type": "mixtral"}),
        row("qwen2", "qwen", qwen | qwen_decoder | {"eos_token": "<|endoftext|>"}),
        row("qwen2 instruct", "qwen", qwen | qwen_decoder | {"add_bos_token": False}),
        row("qwen2 asked for bos", "qwen", qwen | qwen_decoder | {"add_bos_token": True, "bos_token": "<|im_start|>"}),
        row("qwen2 without a class", "qwen", {"eos_token": "<|im_end|>"}, config={"model_type": "qwen2"}),
        row("qwen2 without eos", "qwen", {"tokenizer_class": "Qwen2Tokenizer"}),
        row("qwen3", "qwen", qwen | qwen_decoder | {"errors": "replace", "split_special_tokens": False}),
        row("qwen3 without any tokenizer_config", "qwen", None, config={"model_type": "qwen3"}),
        row("deepseek-v2", "deepseek2", deepseek | {"pad_token": None}),
        row("deepseek-v3", "deepseek3", deepseek),
        row("deepseek-v3 without flags", "deepseek3",
            {k: v for k, v in deepseek.items() if not k.startswith("add_")}),
        row("deepseek-v3 without bos", "deepseek3", deepseek | {"add_bos_token": False}),
        row("deepseek-v3 with eos", "deepseek3", deepseek | {"add_eos_token": True}),
        row("deepseek-v3 with an unk that the vocabulary lacks", "deepseek3", no_unk),
        row("deepseek-v3 without a class", "deepseek3", deepseek_tokens, config={"model_type": "deepseek_v3"}),
        row("r1-distill-qwen", "qwen", deepseek | qwen_decoder | {"bos_token": added("<|im_start|>"),
                                                                  "eos_token": added("<|endoftext|>"),
                                                                  "pad_token": added("<|endoftext|>")}),
        row("r1-distill-llama", "llama3", deepseek | {k: added(v) for k, v in llama3_tokens.items()}
            | {"pad_token": added("<|end_of_text|>")}),
        row("r1-distill-llama without bos", "llama3", deepseek | {k: added(v) for k, v in llama3_tokens.items()}
            | {"pad_token": None, "add_bos_token": False}),
        row("gpt2", "gpt2", {"tokenizer_class": "GPT2Tokenizer"}),
        row("gpt2 with a prefix", "gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}),
        row("gpt2 as a plain class", "gpt2", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}),
        row("gpt2 as the Llama class", "gpt2", {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False,
                                                "bos_token": None, "unk_token": None, "eos_token": "<|endoftext|>"}),
        row("gpt-neox with bos", "gpt2", {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": True}),
        row("cohere", "qwen", {"tokenizer_class": "CohereTokenizer", "bos_token": "<|im_start|>",
                               "eos_token": "<|im_end|>", "unk_token": None}),
        row("merged splits", "merged", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}),
        row("gemma 3", "gemma", {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False,
                                 "clean_up_tokenization_spaces": False, "spaces_between_special_tokens": False}
            | dict_tokens),
        row("gpt-oss", "o200k", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|startoftext|>",
                                 "eos_token": "<|return|>", "pad_token": "<|endoftext|>",
                                 "added_tokens_decoder": added_decoder(style["o200k"]),
                                 "clean_up_tokenization_spaces": False}),
        row("phi-4", "cl100k", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "bos_token": "<|endoftext|>",
                                "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
                                "added_tokens_decoder": added_decoder(style["cl100k"])}),
        row("olmo 2", "cl100k", {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>",
                                 "unk_token": "<|endoftext|>"}),
        row("granite and starcoder2", "starcoder2", {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>",
                                                     "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}),
        row("glm-4", "llama3", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>",
                                "do_lower_case": False, "remove_space": False, "padding_side": "left"}),
        row("falcon", "falcon", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
                                 "add_prefix_space": False}),
    ]


def text_after(backend, prompt, answer, skip):
    """What the answer adds to the prompt's text; None where the prompt ends within a character."""
    before = backend.decode(prompt, skip_special_tokens=skip)
    both = backend.decode(prompt + answer, skip_special_tokens=skip)
    if before.endswith("\ufffd") or not both.startswith(before):
        return None
    return both[len(before):]


def cases(tokenizer, seed):
    backend = tokenizer.backend_tokenizer
    prompts = [{"text": text, "ids": tokenizer(text)["input_ids"],
                "plain": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in TEXTS]
    chooser = random.Random(seed)
    pairs = [(tokenizer(p)["input_ids"], tokenizer(a, add_special_tokens=False)["input_ids"])
             for p in PROMPTS for a in ANSWERS]
    size = backend.get_vocab_size()
    for _ in range(40):
        pairs.append(([chooser.randrange(size) for _ in range(chooser.randrange(1, 8))],
                      [chooser.randrange(size) for _ in range(chooser.randrange(1, 12))]))
    answers = []
    for prompt, answer in pairs:
        entry = {"prompt": prompt, "answer": answer}
        for name, skip in (("shown", False), ("skipped", True)):
            after = text_after(backend, prompt, answer, skip)
            alone = backend.decode(answer, skip_special_tokens=skip)
            if after is not None:
                entry[name] = after
            entry[f"{name}_alone"] = alone
        answers.append(entry)
    return prompts, answers


def record(folder, name, style_json, files, model, seed):
    for old in folder.iterdir():
        old.unlink()
    (folder / "tokenizer.json").write_text(json.dumps(style_json))
    if model is not None:
        (folder / "tokenizer.model").write_bytes(model)
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))
    out = {"name": name, "files": files}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    except ValueError as error:
        return out | {"refused": str(error)}
    prompts, answers = cases(tokenizer, seed)
    return out | {"eos_id": tokenizer.eos_token_id, "bos_id": tokenizer.bos_token_id,
                  "prompts": prompts, "answers": answers}


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = train_sentencepiece(folder)
        style = styles(folder, model)
        for key, value in style.items():
            (HERE / f"{key}.tokenizer.json").write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
        with open(HERE / "variants.jsonl", "w", encoding="utf-8") as out:
            for seed, (variant, style_name, files) in enumerate(variants(style)):
                row = {"style": style_name} | record(folder, variant, style[style_name], files,
                                                     model if style_name.startswith("spm") else None, seed)
                out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                print(f"{variant}: {row.get('refused', 'recorded')}")


main()
