"""The libraries that attn is compared with, each as a process of its own.

    peers.py NAME 'WORKLOAD AS JSON'

speaks the line protocol of benchmarks/support/peer.hpp. A peer is a function that takes the workload and the
inputs and returns two functions: `work` does the work once, `result` fetches what it left as a numpy array
([batch, heads, q_len, head_dim]; layers [batch, q_len, embed_dim]; gemm [m, n]). Each uses its library's best
form of the operation that the library documents, with weights as constants where it can make use of that.
"""

import importlib.metadata
import json
import math
import os
import sys
import time

PEERS = {}


def peer(name, package):
    """Registers a maker under a name; `package` is the one whose version is reported."""

    def register(make):
        PEERS[name] = (make, package)
        return make

    return register


class Unsupported(Exception):
    """The peer has no such operation."""


class Inputs:
    """What the workload computes on, drawn in the order that support/peer.hpp states."""

    def __init__(self, work):
        import numpy as np

        draw = np.random.default_rng(0).standard_normal

        def normal(*extents):
            return draw(extents, dtype=np.float32)

        if work["kind"] == "gemm":
            self.a, self.b = normal(work["m"], work["k"]), normal(work["k"], work["n"])
            return
        batch, heads, kv_heads = work["batch"], work["q_heads"], work["kv_heads"]
        q_len, kv_len, head_dim = work["q_len"], work["kv_len"], work["head_dim"]
        if work["kind"] == "layer":
            width = heads * head_dim
            self.x = normal(batch, q_len, width)
            self.weights = [normal(width, width) / np.float32(math.sqrt(width)) for _ in range(4)]
            return
        self.q = normal(batch, heads, q_len, head_dim)
        self.k = normal(batch, kv_heads, kv_len, head_dim)
        self.v = normal(batch, kv_heads, kv_len, head_dim)
        self.keep = self.bias = None
        if work["mask"] == "padding":  # [batch, 1, 1, kv_len], True where a key is seen
            self.keep = np.arange(kv_len) < np.array(work["lengths"])[:, None, None, None]
        if work["mask"] == "additive":
            self.bias = normal(batch, 1, q_len, kv_len)


def is_causal(work):
    """A single query is the last one: it sees every key."""
    causal = work.get("causal", False) and work["q_len"] > 1
    if causal and work["q_len"] != work["kv_len"]:
        raise Unsupported("a causal mask with more keys than queries")
    return causal


@peer("torch", "torch")
def torch_peer(work, data):
    import torch

    torch.set_num_threads(work["threads"])
    torch.set_grad_enabled(False)
    dtype = torch.bfloat16 if work["dtype"] == "bf16" else torch.float32
    kept = {}

    def tensor(array):
        return torch.from_numpy(array).to(dtype)

    def result():
        return kept["out"].float().numpy()

    if work["kind"] == "gemm":
        a, b = tensor(data.a), tensor(data.b)
        return lambda: kept.update(out=a @ b), result

    attention = torch.nn.functional.scaled_dot_product_attention
    causal = is_causal(work)
    if work["kind"] == "layer":
        batch, length, width = data.x.shape
        heads = work["q_heads"]
        linear = torch.nn.functional.linear
        x = tensor(data.x)
        w_in = torch.cat([tensor(w).t() for w in data.weights[:3]]).contiguous()
        w_out = tensor(data.weights[3]).t().contiguous()

        def layer():
            q, k, v = linear(x, w_in).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            joined = attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(batch, length, width)
            kept["out"] = linear(joined, w_out)

        return layer, result

    q, k, v = tensor(data.q), tensor(data.k), tensor(data.v)
    mask = None
    if data.keep is not None:
        mask = torch.from_numpy(data.keep)
    if data.bias is not None:
        mask = tensor(data.bias)
    grouped = work["q_heads"] != work["kv_heads"]

    def sdpa():
        kept["out"] = attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)

    return sdpa, result


def tokens_first(x):
    """[batch, heads, len, dim] as [batch, len, heads * dim]."""
    import numpy as np

    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


class OnnxGraph:
    """One ONNX graph with output "out", run by ONNX Runtime on buffers that stay bound."""

    def __init__(self):
        self.nodes, self.constants, self.feeds, self.extra_domains = [], [], {}, set()

    def feed(self, name, array):
        import numpy as np

        self.feeds[name] = np.ascontiguousarray(array)
        return name

    def constant(self, name, array):
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind, inputs, outputs, domain="", **attributes):
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        if domain:
            self.extra_domains.add(domain)

    def session(self, out_shape, threads):
        import numpy as np
        import onnxruntime
        from onnx import TensorProto, helper

        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds.items()
        ]
        output = helper.make_tensor_value_info("out", TensorProto.FLOAT, out_shape)
        graph = helper.make_graph(self.nodes, "work", inputs, [output], self.constants)
        opsets = [helper.make_opsetid("", 23)] + [helper.make_opsetid(d, 1) for d in self.extra_domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        binding = session.io_binding()
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in self.feeds.items()}
        values["out"] = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(out_shape, np.float32))
        for name in self.feeds:
            binding.bind_ortvalue_input(name, values[name])
        binding.bind_ortvalue_output("out", values["out"])
        return lambda: session.run_with_iobinding(binding), values["out"].numpy


def onnxruntime_peer(work, data, attention):
    """`attention(graph, work, data, q, k, v, out)` adds the operator; q, k, v are [batch, len, width]."""
    if work["dtype"] != "f32":
        raise Unsupported("bfloat16 on the processor")
    graph = OnnxGraph()
    if work["kind"] == "gemm":
        graph.node("MatMul", [graph.feed("a", data.a), graph.constant("b", data.b)], ["out"])
        return graph.session([work["m"], work["n"]], work["threads"])
    batch, heads, q_len, head_dim = (work[key] for key in ("batch", "q_heads", "q_len", "head_dim"))
    shape = [batch, q_len, heads * head_dim]
    if work["kind"] == "layer":
        x = graph.feed("x", data.x)
        w = [graph.constant(f"w_{part}", w) for part, w in zip("qkvo", data.weights)]
        for part, weight in zip("qkv", w):
            graph.node("MatMul", [x, weight], [part])
        attention(graph, work, data, "q", "k", "v", "joined")
        graph.node("MatMul", ["joined", w[3]], ["out"])
        return graph.session(shape, work["threads"])
    q, k, v = (graph.feed(name, tokens_first(x)) for name, x in zip("qkv", (data.q, data.k, data.v)))
    attention(graph, work, data, q, k, v, "out")
    run, fetch = graph.session(shape, work["threads"])
    return run, lambda: fetch().reshape(batch, q_len, heads, head_dim).transpose(0, 2, 1, 3)


@peer("onnxruntime", "onnxruntime")
def onnxruntime_standard(work, data):
    """The Attention operator of the ONNX standard."""

    def attention(graph, work, data, q, k, v, out):
        inputs = [q, k, v]
        mask = getattr(data, "bias", None) if work["mask"] == "additive" else getattr(data, "keep", None)
        if mask is not None:
            import numpy as np

            full = (work["batch"], 1, work["q_len"], work["kv_len"])
            inputs.append(graph.feed("mask", np.broadcast_to(mask, full)))
        graph.node("Attention", inputs, [out], is_causal=int(is_causal(work)),
                   q_num_heads=work["q_heads"], kv_num_heads=work["kv_heads"])

    return onnxruntime_peer(work, data, attention)


@peer("onnxruntime-mha", "onnxruntime")
def onnxruntime_own(work, data):
    """ONNX Runtime's own MultiHeadAttention operator."""

    def attention(graph, work, data, q, k, v, out):
        if work["q_heads"] != work["kv_heads"]:
            raise Unsupported("grouped heads")
        inputs = [q, k, v]  # then bias, key_padding_mask, attention_bias
        if work["mask"] == "padding":
            import numpy as np

            inputs += ["", graph.feed("keep", data.keep.reshape(work["batch"], -1).astype(np.int32))]
        if work["mask"] == "additive":
            inputs += ["", "", graph.feed("bias", data.bias)]
        graph.node("MultiHeadAttention", inputs, [out], domain="com.microsoft", num_heads=work["q_heads"],
                   unidirectional=int(is_causal(work)))

    if work["kind"] == "gemm":
        raise Unsupported("the same operator as onnxruntime's")
    return onnxruntime_peer(work, data, attention)


@peer("openvino", "openvino")
def openvino_peer(work, data):
    import ml_dtypes
    import numpy as np
    import openvino
    from openvino import opset13 as op

    in_bfloat16 = work["dtype"] == "bf16"
    parameters, tensors = [], []

    def feed(array):
        if in_bfloat16 and work["kind"] != "layer" and array.dtype == np.float32:
            tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(array.shape))
            tensor.data.view(np.uint16)[...] = array.astype(ml_dtypes.bfloat16).view(np.uint16)
        else:
            tensor = openvino.Tensor(np.ascontiguousarray(array))
        tensors.append(tensor)
        parameters.append(op.parameter(array.shape, tensor.element_type))
        return parameters[-1]

    def product(x, weight):
        return op.matmul(x, op.constant(weight), False, False)

    def reshaped(x, *extents):
        return op.reshape(x, op.constant(np.array(extents)), False)

    swap_heads = op.constant(np.array([0, 2, 1, 3]))
    if work["kind"] == "gemm":
        out = product(feed(data.a), data.b)
    elif work["kind"] == "layer":
        batch, length, width = data.x.shape
        heads = work["q_heads"]
        x = feed(data.x)
        q, k, v = (
            op.transpose(reshaped(product(x, w), batch, length, heads, width // heads), swap_heads)
            for w in data.weights[:3]
        )
        joined = op.transpose(op.scaled_dot_product_attention(q, k, v, causal=is_causal(work)), swap_heads)
        out = product(reshaped(joined, batch, length, width), data.weights[3])
    else:
        q, k, v = feed(data.q), feed(data.k), feed(data.v)
        group = work["q_heads"] // work["kv_heads"]
        if group > 1:  # the operator wants as many key heads as query heads
            batch, kv_heads, kv_len, head_dim = data.k.shape

            def repeated(x):
                wide = op.broadcast(op.unsqueeze(x, op.constant(np.array([2]))),
                                    op.constant(np.array([batch, kv_heads, group, kv_len, head_dim])))
                return reshaped(wide, batch, kv_heads * group, kv_len, head_dim)

            k, v = repeated(k), repeated(v)
        mask = data.keep if data.keep is not None else data.bias
        masks = {} if mask is None else {"attention_mask": feed(mask)}
        out = op.scaled_dot_product_attention(q, k, v, causal=is_causal(work), **masks)

    settings = {"INFERENCE_NUM_THREADS": work["threads"], "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False,
                "INFERENCE_PRECISION_HINT": "bf16" if in_bfloat16 else "f32"}
    model = openvino.Core().compile_model(openvino.Model([out], parameters, "work"), "CPU", settings)
    request = model.create_infer_request()
    for i, tensor in enumerate(tensors):
        request.set_input_tensor(i, tensor)

    def result():
        out = request.get_output_tensor(0)
        values = out.data.view(ml_dtypes.bfloat16) if out.element_type == openvino.Type.bf16 else out.data
        return np.array(values, np.float32)

    return request.infer, result


@peer("jax", "jax")
def jax_peer(work, data):
    import jax
    import jax.numpy as jnp
    import numpy as np

    dtype = jnp.bfloat16 if work["dtype"] == "bf16" else jnp.float32
    kept = {}

    def device(array):
        return jax.device_put(jnp.asarray(array, dtype))

    def attention(q, k, v, **masks):  # [batch, len, heads, dim]
        return jax.nn.dot_product_attention(q, k, v, is_causal=is_causal(work), **masks)

    def compiled(function, arguments, fetch=lambda out: out):
        program = jax.jit(function)
        return (
            lambda: kept.update(out=program(*arguments).block_until_ready()),
            lambda: fetch(np.asarray(kept["out"].astype(jnp.float32))),
        )

    if work["kind"] == "gemm":
        return compiled(jnp.matmul, [device(data.a), device(data.b)])
    if work["kind"] == "layer":
        batch, length, width = data.x.shape
        heads = work["q_heads"]

        def layer(x, w_q, w_k, w_v, w_out):
            q, k, v = ((x @ w).reshape(batch, length, heads, width // heads) for w in (w_q, w_k, w_v))
            return attention(q, k, v).reshape(batch, length, width) @ w_out

        return compiled(layer, [device(a) for a in [data.x, *data.weights]])
    masks = {}
    if data.keep is not None:
        masks["mask"] = jnp.asarray(data.keep)
    if data.bias is not None:
        masks["bias"] = device(data.bias)
    arguments = [device(np.ascontiguousarray(x.transpose(0, 2, 1, 3))) for x in (data.q, data.k, data.v)]
    return compiled(lambda q, k, v: attention(q, k, v, **masks), arguments,
                    lambda out: out.transpose(0, 2, 1, 3))


def limit_threads(count):
    """Before any library is loaded: most read these once."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(count)
    os.environ["JAX_PLATFORMS"] = "cpu"
    if count == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


def memory_mb(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key + ":"))


def answer(line, work, result, ready_mb):
    verb, *words = line.split()
    if verb == "run":
        count = int(words[0])
        start = time.perf_counter()
        for _ in range(count):
            work()
        return {"total_s": time.perf_counter() - start, "iters": count}
    if verb == "rss":
        peak = memory_mb("VmHWM")
        return {"peak_rss_mb": peak, "extra_mb": peak - ready_mb}
    if verb == "out":
        import numpy as np

        np.save(words[0], np.asarray(result(), np.float32))
        return {"saved": words[0]}
    return {"error": f"unknown request: {line}"}


def main():
    name, work = sys.argv[1], json.loads(sys.argv[2])
    limit_threads(work["threads"])
    channel = os.fdopen(os.dup(1), "w")  # what libraries print must not come between the answers
    os.dup2(2, 1)

    def say(line):
        channel.write(json.dumps(line) + "\n")
        channel.flush()

    make, package = PEERS[name]
    try:
        run, result = make(work, Inputs(work))
    except Exception as error:  # a library that is missing or refuses is an answer, not a failure
        return say({"ready": False, "why": f"{type(error).__name__}: {error}"[:300]})
    with open("/proc/self/clear_refs", "w") as marks:
        marks.write("5")
    ready_mb = memory_mb("VmRSS")
    say({"ready": True, "peer": name, "version": importlib.metadata.version(package), "note": make.__doc__ or ""})
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        try:
            say(answer(line, run, result, ready_mb))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"[:300]})


if __name__ == "__main__":
    main()
