#!/usr/bin/env python3
"""Writes tests/golden/manifest.json and tests/golden/*.safetensors: small cases of attention and of what stands around
it, computed by PyTorch in float64 from inputs that float32 (float16, bfloat16) holds exactly.

    pip install torch==2.15.0 safetensors==0.8.0 transformers==5.24.0
    python tools/make_goldens.py [DIR]

Results come from PyTorch's (and transformers') own functions and modules where there is one, and from the formula,
written out below in float64, where there is none; where there are both, they must agree. A file holds the cases of one
group; a case's tensors have its name in front: CASE/in.* inputs, CASE/w.* weights under PyTorch's names, CASE/out.*
right outputs. Its kind and attributes are in the manifest. Each case has a seed of its own, made of its name.
"""
import argparse
import itertools
import json
import pathlib
import unittest.mock
import zlib

import safetensors.torch
import torch
import torch.nn.functional as F
from transformers import BartConfig, BartForConditionalGeneration, LlamaConfig, T5Config, T5ForConditionalGeneration
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj.modeling_gptj import rotate_every_two
from transformers.models.llama.modeling_llama import rotate_half

INFINITY = float("inf")


class Goldens:
    def __init__(self, folder):
        self.folder = folder
        self.files, self.cases = {}, []

    def add(self, file, name, kind, config, inputs, outputs, weights=None, note=""):
        tensors = {f"in.{key}": value for key, value in inputs.items() if value is not None}
        tensors |= {f"w.{key}": value for key, value in (weights or {}).items()}
        tensors |= {f"out.{key}": value.double() for key, value in outputs.items()}
        assert name not in (case["name"] for case in self.cases), name
        stored = self.files.setdefault(file, {})
        for key, value in tensors.items():
            stored[f"{name}/{key}"] = value.detach().contiguous().clone()
        has_nan = any(bool(value.isnan().any()) for value in outputs.values())
        self.cases.append({"name": name, "kind": kind, "config": config, "file": file + ".safetensors",
                           "prefix": name + "/", "has_nan": has_nan, "note": note})

    def write(self):
        made_by = f"tools/make_goldens.py with torch {torch.__version__.split('+')[0]}"
        for file, tensors in self.files.items():
            (self.folder / (file + ".safetensors")).write_bytes(safetensors.torch.save(tensors, {"made_by": made_by}))
        cases = ",\n".join(json.dumps(case) for case in self.cases)
        (self.folder / "manifest.json").write_text(f'{{"made_by": "{made_by}",\n"cases": [\n{cases}\n]}}\n')


class Draw:
    """Inputs of the case of this name."""

    def __init__(self, name, dtype=torch.float32):
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self.dtype = dtype

    def normal(self, *shape, size=1.0):
        return (size * torch.randn(*shape, generator=self.generator)).to(self.dtype)

    def flags(self, *shape, true=0.6):
        """At least the last of each row is true."""
        flags = torch.rand(*shape, generator=self.generator) < true
        flags[..., -1] = True
        return flags

    def whole(self, *shape, below):
        return torch.randint(below, shape, generator=self.generator)

    def fill(self, module):
        """Gives a module weights that are float32-exact, and of a size that tells mistakes apart."""
        module = module.double().eval()
        with torch.no_grad():
            for name, weight in module.named_parameters():
                fan_in = weight.shape[-1] if weight.dim() > 1 else 4
                value = self.normal(*weight.shape, size=fan_in**-0.5)
                is_norm_weight = "norm" in name and name.endswith("weight")
                weight.copy_(value + 1 if is_norm_weight else value)
        return module


def weights_of(module):
    return {name: value.float() for name, value in module.state_dict().items()}


# ---- Attention, from the formula ----

def softmax_attention(q, k, v, *, scale=None, soft_cap=0.0, bias=None, keep=None, sinks=None):
    """out, the natural logarithm of the softmax's denominator, and in small cases the probabilities; a row that sees no
    key is zero."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1]**-0.5 if scale is None else scale)
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if bias is not None:
        scores = scores + bias.double()
    if keep is not None:
        scores = scores.masked_fill(~keep, -INFINITY)
    terms = scores
    if sinks is not None:
        terms = torch.cat([scores, sinks.double()[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    probs = torch.softmax(terms, -1)[..., :k.shape[2]].masked_fill(scores == -INFINITY, 0)
    right = {"out": probs @ v, "lse": torch.logsumexp(terms, -1)}
    return right | ({"probs": probs} if probs[0, 0].numel() <= 100 else {})  # the files are to be small


def key_minus_query(q_len, kv_len, offset=0):
    """How far key j stands behind query i: [q_len, kv_len], or [batch, 1, q_len, kv_len] for an offset per entry."""
    after = torch.arange(kv_len)[None, :] - torch.arange(q_len)[:, None]
    return after - torch.tensor(offset)[:, None, None, None] if isinstance(offset, list) else after - offset


def both(keep, other):
    return other if keep is None else keep & other


def add_sdpa(goldens, name, *, b=2, h=2, kv=None, l=5, s=7, d=5, dv=None, dtype=torch.float32, size=1.0, causal=False,
             offset=None, mask=None, scale=None, soft_cap=0.0, sinks=False, note=""):
    """F.scaled_dot_product_attention, and its variants that PyTorch does not have."""
    draw = Draw(name, dtype)
    kv, dv = kv or h, dv or d
    q, k, v = draw.normal(b, h, l, d, size=size), draw.normal(b, kv, s, d), draw.normal(b, kv, s, dv)
    mask = mask(draw) if mask else None
    is_bool = mask is not None and mask.dtype == torch.bool
    keep = mask if is_bool else None
    if causal:
        keep = both(keep, key_minus_query(l, s, offset or 0) <= 0)
    sink = draw.normal(h) if sinks else None
    bias = None if mask is None or is_bool else mask.double()
    right = softmax_attention(q, k, v, scale=scale, soft_cap=soft_cap, bias=bias, keep=keep, sinks=sink)
    if not soft_cap and not sinks:
        argument = keep if bias is None else bias if keep is None else bias.masked_fill(~keep, -INFINITY)
        out = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), argument, scale=scale,
                                             enable_gqa=kv != h)
        torch.testing.assert_close(out, right["out"], rtol=1e-13, atol=1e-13)
        right["out"] = out
    config = {"causal": causal, "scale": scale, "soft_cap": soft_cap, "query_offset": offset}
    goldens.add("sdpa" if dtype == torch.float32 else "sdpa_16_bit", name, "sdpa", config,
                {"q": q, "k": k, "v": v, "mask": mask, "sinks": sink}, right, note=note)


def add_masked(goldens, name, kind, config, *, b=1, h=2, l=9, s=9, d=4, offset=None, scale=None, inputs=None, keep=None,
               bias=None, note=""):
    draw = Draw(name)
    q, k, v = draw.normal(b, h, l, d), draw.normal(b, h, s, d), draw.normal(b, h, s, d)
    right = softmax_attention(q, k, v, keep=keep, bias=bias, scale=scale)
    config = config | {"query_offset": offset, "scale": scale}
    goldens.add("masks", name, kind, config, {"q": q, "k": k, "v": v} | (inputs or {}), right, note=note)


def sdpa(goldens):
    def drop_rows(draw):
        keep = draw.flags(2, 1, 5, 7)
        keep[0, 0, 1], keep[1, 0, 0], keep[1, 0, 4] = False, False, False
        return keep

    def infinite_bias(draw):
        bias = draw.normal(5, 7)
        return bias.masked_fill(~draw.flags(5, 7), -INFINITY)

    def lowest_bias(draw):
        bias = draw.normal(2, 1, 5, 7)
        bias[1, 0, 3] = torch.finfo(torch.float32).min
        return bias

    add = lambda name, **options: add_sdpa(goldens, "sdpa_" + name, **options)
    add("plain")
    add("no_batch_no_heads", b=1, h=1)
    add("one_query_one_key", l=1, s=1)
    add("one_query", l=1, s=40, h=4, kv=2)
    for d in (1, 3, 7, 9, 17, 33):
        add(f"head_dim_{d}", b=1, l=3, s=5, d=d)
    add("value_dim_smaller", d=12, dv=5)
    add("value_dim_larger", d=5, dv=11)
    add("scale", scale=0.3)
    add("scale_zero", scale=0.0, note="the mean of the values")
    add("scale_negative", scale=-0.5)
    add("large_scores", size=200.0, note="scores in the hundreds")
    add("causal", causal=True, l=6, s=6)
    add("causal_top_left_more_keys", causal=True, l=4, s=7, offset=0)
    add("causal_top_left_more_queries", causal=True, l=7, s=4, offset=0)
    add("causal_bottom_right_more_keys", causal=True, l=4, s=7, offset=3)
    add("causal_bottom_right_more_queries", causal=True, l=7, s=4, offset=-3, note="the first queries see nothing")
    add("causal_offset_per_batch", causal=True, l=3, s=8, b=3, offset=[5, 0, -2])
    add("gqa", h=6, kv=2)
    add("mqa_causal", h=3, kv=1, causal=True, l=6, s=6)
    for shape in ((5, 7), (2, 5, 7), (2, 1, 1, 7), (2, 1, 5, 7), (2, 2, 5, 7)):
        axes = "x".join(map(str, shape))
        add(f"bool_mask_{axes}", mask=lambda draw, shape=shape: draw.flags(*shape))
        add(f"float_mask_{axes}", mask=lambda draw, shape=shape: draw.normal(*shape))
    add("bool_mask_and_causal", causal=True, offset=2, mask=lambda draw: draw.flags(5, 7))
    add("float_mask_and_causal", causal=True, offset=0, mask=lambda draw: draw.normal(2, 5, 7))
    add("rows_without_keys", mask=drop_rows)
    add("float_mask_with_infinities", mask=infinite_bias)
    add("float_mask_of_lowest_numbers", mask=lowest_bias, note="a row of the lowest number everywhere is the mean")
    add("soft_cap", soft_cap=1.5, size=3.0)
    add("soft_cap_mask_causal", soft_cap=2.0, causal=True, offset=2, mask=lambda draw: draw.normal(5, 7, size=2.0))
    add("sinks", sinks=True)
    add("sinks_gqa_causal", sinks=True, h=4, kv=2, causal=True, l=6, s=6)
    add("sinks_rows_without_keys", sinks=True, mask=drop_rows)
    add("tiles", b=1, h=1, l=35, s=70, d=17, dv=9)
    add("tiles_causal_gqa", b=1, kv=1, l=40, s=67, d=8, causal=True, offset=27)
    add("tiles_bool_mask_soft_cap_sinks", b=1, l=33, s=65, d=8, soft_cap=3.0, sinks=True,
        mask=lambda draw: draw.flags(33, 65))
    for dtype, name in ((torch.float16, "half"), (torch.bfloat16, "bfloat16")):
        add(name, dtype=dtype)
        add(f"{name}_causal_gqa", dtype=dtype, h=4, kv=2, l=6, s=6, causal=True)
        add(f"{name}_float_mask", dtype=dtype, mask=lambda draw: draw.normal(2, 1, 5, 7))
        add(f"{name}_bool_mask_soft_cap", dtype=dtype, soft_cap=2.0, mask=lambda draw: draw.flags(5, 7))
        add(f"{name}_tiles", dtype=dtype, b=1, h=1, l=19, s=67, d=9, dv=17)


# ---- Masks ----

def alibi_slopes(heads):
    """Press et al. 2022: a geometric sequence; heads beyond a power of two take every other slope of twice it."""
    power = 2**(heads.bit_length() - 1)
    slopes = [2.0**(-8 * (i + 1) / power) for i in range(power)]
    between = [2.0**(-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return torch.tensor(slopes + between[:heads - power], dtype=torch.float64)


def relative_bucket(after, buckets, max_distance, bidirectional):
    """T5's bucket of a key `after` positions behind the query, in whole numbers: floor(log(x / e) / log(m / e) * r) is
    the largest n with (x / e)^r >= (m / e)^n."""
    count = buckets // 2 if bidirectional else buckets
    first = count if bidirectional and after > 0 else 0
    distance = abs(after) if bidirectional else max(-after, 0)
    exact = count // 2
    if distance < exact:
        return first + distance
    rest = count - exact
    step = max(n for n in range(rest + 1) if distance**rest * exact**n >= max_distance**n * exact**rest)
    return first + min(exact + step, count - 1)


def relative_bias(table, after, **buckets):
    numbers = torch.tensor([[relative_bucket(int(a), **buckets) for a in row] for row in after])
    return table.double()[numbers].permute(2, 0, 1)[None]


def masks(goldens):
    add = lambda name, *arguments, **options: add_masked(goldens, name, *arguments, **options)
    windows = ((2, 0), (3, 1), (0, 0), (-1, 2), (4, -1))
    for (left, right), (l, s, offset) in itertools.product(windows, ((9, 9, None), (5, 9, 4))):
        after = key_minus_query(l, s, offset or 0)
        keep = ((after >= -left) | (left < 0)) & ((after <= right) | (right < 0))
        add(f"window_{left}_{right}_{l}x{s}", "sdpa.window", {"left": left, "right": right}, l=l, s=s, offset=offset,
            keep=keep)
    after = key_minus_query(75, 75)
    add("window_tiles", "sdpa.window", {"left": 20, "right": 3}, h=1, l=75, s=75, keep=(after >= -20) & (after <= 3))
    add("window_offset_per_batch", "sdpa.window", {"left": 1, "right": 1}, b=2, l=3, s=9, offset=[6, -2],
        keep=key_minus_query(3, 9, [6, -2]).abs() <= 1, note="the first query of the second entry sees nothing")

    for heads, (l, s, offset) in itertools.product((4, 6, 12), ((9, 9, None), (3, 9, 6))):
        after = key_minus_query(l, s, offset or 0)
        bias = alibi_slopes(heads)[:, None, None] * after
        add(f"alibi_{heads}_{l}x{s}", "sdpa.alibi", {"form": "causal"}, h=heads, l=l, s=s, offset=offset, bias=bias,
            keep=after <= 0)
    after = key_minus_query(41, 70, 10)
    add("alibi_symmetric_tiles", "sdpa.alibi", {"form": "symmetric"}, h=3, l=41, s=70, offset=10,
        bias=-alibi_slopes(3)[:, None, None] * after.abs())

    sizes = (("t5", 32, 128, 20, 150, 60), ("small", 8, 20, 9, 9, None))
    for (size, buckets, max_distance, l, s, offset), form in itertools.product(sizes, ("bidirectional", "causal")):
        name = f"relative_bias_{size}_{form}"
        after = key_minus_query(l, s, offset or 0)
        table = Draw("table of " + name).normal(buckets, 2)
        bias = relative_bias(table, after, buckets=buckets, max_distance=max_distance, bidirectional=form != "causal")
        add(name, "sdpa.relative_bias", {"form": form, "num_buckets": buckets, "max_distance": max_distance}, l=l, s=s,
            offset=offset, scale=1.0, inputs={"table": table}, bias=bias, keep=after <= 0 if form == "causal" else None)

    lengths = [9, 4, 0]
    add("key_padding", "sdpa.key_padding", {"lengths": lengths}, b=3,
        keep=(torch.arange(9) < torch.tensor(lengths)[:, None])[:, None, None, :], note="the last entry has no keys")
    for causal in (False, True):
        ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [5, 5, 1, 1, 1, 5, 5, 5, 3]])
        keep = (ids[:, :, None] == ids[:, None, :])[:, None]
        add("documents_causal" if causal else "documents", "sdpa.documents", {"causal": causal}, b=2,
            inputs={"query_ids": ids, "key_ids": ids},
            keep=keep & (key_minus_query(9, 9) <= 0) if causal else keep)
    queries, keys = torch.tensor([[1, 0, 7]]), torch.tensor([[0, 1, 1, 2, 0]])
    add("documents_cross", "sdpa.documents", {"causal": False}, l=3, s=5,
        inputs={"query_ids": queries, "key_ids": keys},
        keep=(queries[:, :, None] == keys[:, None, :])[:, None], note="the last query's document has no keys")
    prefix = [3, 0]
    add("prefix", "sdpa.prefix", {"lengths": prefix}, b=2,
        keep=(torch.arange(9) < torch.tensor(prefix)[:, None])[:, None, None, :] | (key_minus_query(9, 9) <= 0))


# ---- Modules of PyTorch; gradients stay enabled, since without them PyTorch puts zeros where there is padding ----

def multi_head_attention(goldens):
    def add(name, *, dim=9, heads=3, n=2, l=4, s=6, self_attention=False, batch_first=True, average=True, padding=None,
            mask=None, note="", **module_options):
        draw = Draw("mha_" + name)
        module = draw.fill(torch.nn.MultiheadAttention(dim, heads, batch_first=batch_first, **module_options))
        kdim, vdim = module_options.get("kdim") or dim, module_options.get("vdim") or dim

        def sequence(length, width):
            shape = (length, width) if n is None else (n, length, width) if batch_first else (length, n, width)
            return draw.normal(*shape)

        query = sequence(l, dim)
        key, value = (query, query) if self_attention else (sequence(s, kdim), sequence(s, vdim))
        padding, mask = padding and padding(draw), mask and mask(draw)
        exact = lambda x: x.double() if x is not None and x.is_floating_point() else x
        out, weights = module(query.double(), key.double(), value.double(), key_padding_mask=exact(padding),
                              attn_mask=exact(mask), average_attn_weights=average)
        config = {"embed_dim": dim, "num_heads": heads, "batch_first": batch_first, "self": self_attention,
                  "average_attn_weights": average} | module_options
        inputs = {"query": query, "key_padding_mask": padding, "attn_mask": mask}
        inputs |= {} if self_attention else {"key": key, "value": value}
        goldens.add("multi_head_attention", "mha_" + name, "nn.MultiheadAttention", config, inputs,
                    {"out": out, "weights": weights}, weights_of(module), note)

    add("self", self_attention=True)
    add("cross")
    add("length_first", batch_first=False)
    add("unbatched", n=None, padding=lambda draw: ~draw.flags(6))
    add("no_bias", bias=False)
    add("weights_per_head", average=False)
    add("kdim_vdim", kdim=7, vdim=5)
    add("kdim_vdim_no_bias", kdim=7, vdim=5, bias=False)
    add("bias_kv", add_bias_kv=True, average=False)
    add("zero_attn", add_zero_attn=True, average=False)
    add("bias_kv_zero_attn_masks", add_bias_kv=True, add_zero_attn=True, average=False,
        padding=lambda draw: ~draw.flags(2, 6), mask=lambda draw: ~draw.flags(4, 6))
    add("padding", padding=lambda draw: ~draw.flags(2, 6))
    add("float_padding", padding=lambda draw: draw.normal(2, 6))
    add("mask", mask=lambda draw: ~draw.flags(4, 6))
    add("float_mask", mask=lambda draw: draw.normal(4, 6))
    add("mask_per_head", mask=lambda draw: ~draw.flags(2 * 3, 4, 6), average=False)
    add("float_mask_per_head", mask=lambda draw: draw.normal(2 * 3, 4, 6), average=False)
    add("padding_and_mask", padding=lambda draw: ~draw.flags(2, 6), mask=lambda draw: ~draw.flags(4, 6))
    add("causal_and_padding", self_attention=True, l=6,
        padding=lambda draw: torch.tensor([[False] * 6, [False] * 4 + [True] * 2]),
        mask=lambda draw: key_minus_query(6, 6) > 0)
    add("row_without_keys", mask=lambda draw: torch.arange(4)[:, None].eq(2).expand(4, 6),
        note="PyTorch's row is NaN, attn's is zero")
    add("heads_of_one", heads=9)
    add("one_head", heads=1)


def transformer_layers(goldens):
    size = {"d_model": 9, "nhead": 3, "dim_feedforward": 14}
    x, memory = Draw("layer input").normal(2, 5, 9), Draw("layer memory").normal(2, 6, 9)
    causal = key_minus_query(5, 5) > 0
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    memory_padding = torch.tensor([[False] * 4 + [True] * 2, [False] * 6])
    memory_mask = ~Draw("memory mask").flags(5, 6).flip(-1)
    layers = {"encoder": torch.nn.TransformerEncoderLayer, "decoder": torch.nn.TransformerDecoderLayer}

    def add(layer, name, options, **inputs):
        """`inputs` are named as the conformance program knows them, and in the order of PyTorch's arguments."""
        name = f"{layer}_{name}"
        module = Draw(name).fill(layers[layer](**size, **options))
        arguments = [value.double() if value.is_floating_point() else value for value in inputs.values()]
        goldens.add("layers", name, layers[layer].__name__, size | options, inputs, {"out": module(*arguments)},
                    weights_of(module))

    for norm_first, activation in itertools.product((False, True), ("relu", "gelu")):
        options = {"norm_first": norm_first, "activation": activation, "batch_first": True}
        name = f"{'pre' if norm_first else 'post'}_{activation}"
        add("encoder", name, options, x=x)
        add("decoder", name, options, x=x, memory=memory, mask=causal)
    options = {"norm_first": True, "activation": "gelu", "batch_first": True, "bias": False, "layer_norm_eps": 0.01}
    add("encoder", "masks_no_bias", options, x=x, mask=causal, key_padding_mask=padding)
    add("decoder", "masks_length_first", {"batch_first": False}, x=x.transpose(0, 1),
        memory=memory.transpose(0, 1), mask=causal, memory_mask=memory_mask, key_padding_mask=padding,
        memory_key_padding_mask=memory_padding)


def transformers(goldens):
    causal, padding = key_minus_query(5, 5) > 0, torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    for norm_first, (encoders, decoders) in ((False, (1, 1)), (True, (1, 2))):
        name = "transformer_" + ("pre" if norm_first else "post")
        options = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "norm_first": norm_first, "activation": "gelu",
                   "batch_first": True}
        draw = Draw(name)
        module = draw.fill(torch.nn.Transformer(num_encoder_layers=encoders, num_decoder_layers=decoders, **options))
        source, target = draw.normal(2, 6, 8), draw.normal(2, 5, 8)
        memory = module.encoder(source.double(), src_key_padding_mask=padding)
        out = module(source.double(), target.double(), tgt_mask=causal, src_key_padding_mask=padding,
                     memory_key_padding_mask=padding)
        goldens.add("layers", name, "nn.Transformer", options | {"layers": [encoders, decoders], "final_norms": True},
                    {"src": source, "tgt": target, "tgt_mask": causal, "src_key_padding_mask": padding},
                    {"memory": memory, "out": out}, weights_of(module))


# ---- Operators ----

def operators(goldens):
    def add(name, kind, config, inputs, outputs, weights=None):
        goldens.add("operators", name, kind, config, inputs, outputs, weights)

    for axes, affine in itertools.product((1, 2, 3), ((), ("weight",), ("weight", "bias"))):
        name = f"layer_norm_{axes}_axes_{'_'.join(affine) or 'plain'}"
        draw = Draw(name)
        x = draw.normal(3, 4, 9) + 5
        weights = {role: draw.normal(*x.shape[3 - axes:]) for role in affine}
        out = F.layer_norm(x.double(), x.shape[3 - axes:], *(value.double() for value in weights.values()), eps=1e-5)
        add(name, "layer_norm", {"axis": -axes, "eps": 1e-5}, {"x": x}, {"out": out}, weights)
    for axes, affine, eps in itertools.product((1, 2), ((), ("weight",)), (1e-6, 0.1)):
        name = f"rms_norm_{axes}_axes_{'_'.join(affine) or 'plain'}_eps_{eps:g}"
        draw = Draw(name)
        x = draw.normal(3, 4, 9)
        weights = {role: draw.normal(*x.shape[3 - axes:]) for role in affine}
        exact = [value.double() for value in weights.values()] or [None]
        out = F.rms_norm(x.double(), x.shape[3 - axes:], *exact, eps)
        add(name, "rms_norm", {"axis": -axes, "eps": eps}, {"x": x}, {"out": out}, weights)
    for function, axis in itertools.product((F.softmax, F.log_softmax), (-1, 0, 1, 2)):
        name = f"{function.__name__}_axis_{axis}"
        x = Draw(name).normal(3, 5, 11, size=4.0)
        add(name, function.__name__, {"dim": axis}, {"x": x}, {"out": function(x.double(), axis)})
    activations = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
                   "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
    for kind, function in activations.items():
        near, far = Draw("act_" + kind).normal(69, size=1.5), torch.tensor([9.0, -9.0, 100.0, -100.0, 1e30, -1e30])
        add("act_" + kind, kind, {}, {"x": near}, {"out": function(near.double())})
        add("act_far_" + kind, kind, {}, {"x": far}, {"out": function(far.double())})
    gates = {"glu": torch.sigmoid, "reglu": F.relu, "geglu": F.gelu, "geglu_tanh": activations["gelu_tanh"],
             "swiglu": F.silu}
    for (kind, function), has_bias in itertools.product(gates.items(), (False, True)):
        name = kind + ("_bias" if has_bias else "")
        draw = Draw(name)
        x = draw.normal(2, 3, 8)
        weights = {"gate": draw.normal(12, 8), "up": draw.normal(12, 8), "down": draw.normal(8, 12)}
        if has_bias:
            weights |= {"gate_bias": draw.normal(12), "up_bias": draw.normal(12), "down_bias": draw.normal(8)}
        exact = {key: value.double() for key, value in weights.items()}
        project = lambda name, x: F.linear(x, exact[name], exact.get(name + "_bias"))
        out = project("down", function(project("gate", x.double())) * project("up", x.double()))
        add(name, kind + "_ffn", {}, {"x": x}, {"out": out}, weights)
    rates = 10000.0**-(torch.arange(0, 10, 2, dtype=torch.float64) / 10)
    angles = torch.arange(6, dtype=torch.float64)[:, None] * rates
    add("sinusoidal", "sinusoidal_positional_encoding", {"positions": 6, "d": 10}, {},
        {"pe": torch.stack([angles.sin(), angles.cos()], -1).flatten(1)})


# ---- Rotary embeddings: frequencies and rotations by functions of transformers ----

def in_float64():
    """For functions of transformers that compute in float32 whatever they are given."""
    return unittest.mock.patch.multiple(torch, float=torch.float64, float32=torch.float64)


def rope_frequencies(dim, theta, scaling, **sizes):
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1, head_dim=dim,
                         rope_parameters={"rope_theta": theta} | scaling, **sizes)
    with in_float64():
        return ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"), scaling.get("len"))


def rope(goldens):
    def add(name, *, dim=16, rotary_dim=16, theta=10000.0, interleaved=False, scaling=None, **sizes):
        x = Draw("rope_" + name).normal(2, 1, 3, dim)
        positions = Draw("positions of rope_" + name).whole(2, 3, below=4096)
        exact = torch.arange(0, rotary_dim, 2, dtype=torch.float64)
        frequencies, size = theta**(-exact / rotary_dim), 1.0
        if scaling:
            frequencies, size = rope_frequencies(rotary_dim, theta, scaling, **sizes)
            assert frequencies.dtype == torch.float64
        angles = positions[:, None, :, None].double() * frequencies
        cos, sin = size * angles.cos(), size * angles.sin()
        rotated, kept = x.double()[..., :rotary_dim], x.double()[..., rotary_dim:]
        if interleaved:
            cos, sin, turned = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1), rotate_every_two(rotated)
        else:
            cos, sin, turned = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1), rotate_half(rotated)
        config = {"theta": theta, "rotary_dim": rotary_dim, "interleaved": interleaved} | (
            {"scaling": scaling | sizes} if scaling else {})
        goldens.add("rope", "rope_" + name, "rope", config, {"x": x, "pos": positions},
                    {"out": torch.cat([rotated * cos + turned * sin, kept], -1), "frequencies": frequencies})

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 1024}
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 512}
    for interleaved in (False, True):
        pairing = "interleaved" if interleaved else "half"
        add("partial_" + pairing, dim=10, rotary_dim=6, theta=500.0, interleaved=interleaved)
        add("one_pair_" + pairing, dim=3, rotary_dim=2, interleaved=interleaved)
        add("yarn_" + pairing, dim=64, rotary_dim=64, interleaved=interleaved, scaling=yarn)
    add("linear", scaling={"rope_type": "linear", "factor": 4.0})
    for rows in (512, 600, 4096):
        add(f"dynamic_{rows}", scaling=dynamic | {"len": rows}, max_position_embeddings=512)
    add("yarn_partial", dim=40, rotary_dim=32, theta=1e6, scaling=yarn | {"truncate": False})
    add("yarn_betas", dim=64, rotary_dim=64, scaling=yarn | {"beta_fast": 16.0, "beta_slow": 2.0, "factor": 40.0})
    add("yarn_attention_factor", scaling=yarn | {"attention_factor": 0.75})
    add("yarn_mscale", scaling=yarn | {"mscale": 0.7, "mscale_all_dim": 1.2})
    add("llama3", dim=64, rotary_dim=64, theta=5e5, scaling=llama3)
    add("llama3_wide", dim=32, rotary_dim=32, scaling=llama3 | {"low_freq_factor": 0.5, "high_freq_factor": 16.0})


# ---- Sequence-to-sequence models of transformers ----

def encoder_decoders(goldens):
    def add(name, model, seed, padding=False):
        draw = Draw(f"seq2seq_{seed}{name}")
        is_untied = model.config.to_dict().get("scale_decoder_outputs") is False
        if is_untied:  # as in checkpoints of T5 1.1; transformers makes a tied module of it all the same
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        model = draw.fill(model)
        with torch.no_grad():  # tied embeddings alone would have a model repeat its last token
            for key, weight in model.named_parameters():
                weight *= 8 if "embed_positions" in key else 16 if "relative" in key else 1
        ids, targets = draw.whole(3, 7, below=16) + 4, draw.whole(3, 4, below=16) + 4
        mask = torch.ones_like(ids)
        if padding:
            mask[0, 4:], mask[2, 1:] = 0, 0
        ids = ids.masked_fill(mask == 0, model.config.pad_token_id)
        with in_float64():
            out = model(input_ids=ids, attention_mask=mask, decoder_input_ids=targets)

        def greedy():
            options = {"num_beams": 1, "do_sample": False, "max_new_tokens": 10, "use_cache": False,
                       "forced_eos_token_id": None, "eos_token_id": model.config.eos_token_id,
                       "pad_token_id": model.config.pad_token_id}
            with in_float64():
                return model.generate(input_ids=ids, attention_mask=mask, **options)[:, 1:]

        model.config.eos_token_id = int(greedy()[0, 3])  # a target that ends, and perhaps some that do not
        tokens = greedy()
        whole = model.config.to_dict()
        config = {key: whole[key] for key in configs[whole["model_type"]]}
        shared = ["embed_tokens.weight", "final_logits_bias"] + ["lm_head.weight"] * (not is_untied)
        weights = {key: value for key, value in weights_of(model).items() if not key.endswith(tuple(shared))}
        goldens.add("encoder_decoder", "seq2seq_" + name, "transformers:" + type(model).__name__, config,
                    {"ids": ids, "decoder_ids": targets, "attention_mask": mask if padding else None},
                    {"main": out.logits, "greedy": tokens}, weights)

    tokens = ["model_type", "vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id",
              "tie_word_embeddings"]
    configs = {
        "t5": tokens + ["d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads", "feed_forward_proj",
                        "relative_attention_num_buckets", "relative_attention_max_distance", "layer_norm_epsilon",
                        "scale_decoder_outputs"],
        "bart": tokens + ["d_model", "max_position_embeddings", "activation_function", "scale_embedding"] + [
            f"{stack}_{what}" for stack in ("encoder", "decoder") for what in ("layers", "attention_heads", "ffn_dim")]}
    t5 = {"vocab_size": 20, "d_model": 12, "d_kv": 4, "d_ff": 16, "num_heads": 2, "relative_attention_num_buckets": 8,
          "relative_attention_max_distance": 9, "dropout_rate": 0.0, "decoder_start_token_id": 0}
    add("t5", T5ForConditionalGeneration(T5Config(num_layers=1, num_decoder_layers=2, **t5)), "d")
    add("t5_gated_untied", T5ForConditionalGeneration(
        T5Config(num_layers=2, num_decoder_layers=1, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **t5)),
        "d", padding=True)
    bart = {"vocab_size": 20, "d_model": 12, "encoder_ffn_dim": 16, "decoder_ffn_dim": 20, "encoder_attention_heads": 2,
            "decoder_attention_heads": 3, "max_position_embeddings": 12}
    add("bart", BartForConditionalGeneration(BartConfig(encoder_layers=2, decoder_layers=1, **bart)), "b", padding=True)
    add("bart_scaled", BartForConditionalGeneration(
        BartConfig(encoder_layers=1, decoder_layers=2, scale_embedding=True, activation_function="relu", **bart)), "b")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", nargs="?", type=pathlib.Path, metavar="DIR",
                         default=pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    goldens = Goldens(options.parse_args().out)
    for group in (sdpa, masks, multi_head_attention, transformer_layers, transformers, operators, rope,
                  encoder_decoders):
        group(goldens)
    goldens.write()
    size = sum(file.stat().st_size for file in goldens.folder.glob("*.safetensors"))
    print(f"{goldens.folder}: {len(goldens.cases)} cases, {size} bytes of tensors")


if __name__ == "__main__":
    main()
