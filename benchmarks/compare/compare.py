#!/usr/bin/env python3
"""Times attn beside the libraries in peers.py, on the same inputs and in turns, and writes a table and a chart.

    compare.py --attn BUILD/benchmarks/attn_peer [--only GROUP-OR-NAME ...] [--peers NAME ...]
               [--program NAME=PATH ...] [--threads N] [--cpus 1,2] [--seconds S] [--out DIR]
    compare.py --join RESULTS.JSON ... [--out DIR]      one table and chart of several measurements

Every contestant is a process of its own that holds its inputs. A round times a few milliseconds of each in
turn, so that whatever slows the machine down for a while slows all of them; the first one rotates. Reported
are the median time, and the median over the rounds of (time of the peer / time of attn in the same round):
above 1, attn is faster. DIR gets results.json (everything measured), table.md and chart.svg.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import chart
import peers

HERE = pathlib.Path(__file__).resolve().parent
BLOCK_SECONDS = 0.03  # of one contestant's turn: far above the clock's grain, far below the machine's moods
MAX_ROUNDS = 25


class Contestant:
    """A process that speaks the line protocol; see benchmarks/support/peer.hpp."""

    def __init__(self, name, command, work, cpus):
        # Variables that force a BLAS kernel would measure another library than the one installed.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        # Some runtimes fix their threads by the processors they may use when they start: hence before exec.
        pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
        self.name, self.seconds = name, []
        self.process = subprocess.Popen([*command, json.dumps(work)], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env=environment, preexec_fn=pin)
        self.hello = self.read()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ready": False, "error": "ended", "why": "ended at once"}

    def ask(self, request):
        """The answer; raises RuntimeError if the contestant reports an error or has ended."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        reply = self.read()
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def run(self, count):
        return self.ask(f"run {count}")["total_s"] / count

    def warm_up(self):
        """First calls, which may compile and allocate; then the number of runs in a turn."""
        self.run(1)
        self.runs = max(1, round(BLOCK_SECONDS / max(min(self.run(1), self.run(1)), 1e-7)))
        self.memory = self.ask("rss")

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("quit\n")
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def operations(work):
    """Useful floating-point operations: visible pairs under a causal mask; padding is not deducted."""
    if work["kind"] == "gemm":
        return 2 * work["m"] * work["n"] * work["k"]
    q_len, kv_len, width = work["q_len"], work["kv_len"], work["q_heads"] * work["head_dim"]
    pairs = q_len * kv_len
    if work["causal"]:
        pairs = sum(kv_len - q_len + i + 1 for i in range(q_len))
    projections = 8 * q_len * width**2 if work["kind"] == "layer" else 0
    return work["batch"] * (4 * pairs * width + projections)


def difference(contestant, reference):
    """Largest absolute difference to the reference's output, and the output."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.npy")
        contestant.ask(f"out {path}")
        out = np.load(path)
    if reference is None:
        return 0.0, out
    if out.shape != reference.shape:
        raise RuntimeError(f"output {out.shape} instead of {reference.shape}")
    return float(abs(out - reference).max()), reference


def start_all(commands, work, cpus):
    """The contestants that can do the work, warmed up and checked against the first one, attn."""
    ready, reference = [], None
    for name, command in commands.items():
        contestant = Contestant(name, command, work, cpus)
        try:
            if not contestant.hello["ready"]:
                raise RuntimeError(contestant.hello["why"])
            contestant.warm_up()
            contestant.difference, reference = difference(contestant, reference)
            ready.append(contestant)
        except (RuntimeError, KeyError) as problem:
            print(f"    {name}: left out: {problem}", flush=True)
            contestant.close()
            if not ready:
                return []
    return ready


def take_turns(contestants, seconds):
    end = time.monotonic() + seconds
    for turn in range(MAX_ROUNDS):
        shift = turn % len(contestants)
        for contestant in contestants[shift:] + contestants[:shift]:
            contestant.seconds.append(contestant.run(contestant.runs))
        if turn >= 2 and time.monotonic() > end:
            break


def measure(commands, work, cpus, seconds):
    """One workload: a list of result rows, attn first; empty if attn cannot do it."""
    contestants = start_all(commands, work, cpus)
    try:
        if not contestants:
            return []
        take_turns(contestants, seconds)
        peak = contestants[0].ask("peak")["gflops"] * work["threads"]
        ours = contestants[0].seconds
        return [
            {
                "workload": work["name"], "group": work["group"], "threads": work["threads"], "peer": c.name,
                "date": str(datetime.date.today()), "machine": processor(),
                "version": c.hello["version"], "note": c.hello["note"],
                "median_s": statistics.median(c.seconds), "min_s": min(c.seconds), "rounds": len(c.seconds),
                "gflops": operations(work) / statistics.median(c.seconds) / 1e9, "peak_gflops": peak,
                "ratio": statistics.median(theirs / own for theirs, own in zip(c.seconds, ours)),
                "max_abs_diff": c.difference, **c.memory,
            }
            for c in contestants
        ]
    finally:
        for contestant in contestants:
            contestant.close()


def processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return "unknown processor"


def table(rows, groups, heading):
    """Markdown: one line a workload, one column a peer with its time relative to attn's."""
    names = list(dict.fromkeys(row["peer"] for row in rows if row["peer"] != "attn"))
    versions = {row["peer"]: row["version"] for row in rows}
    lines = [heading, "", "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
    for group in dict.fromkeys(row["group"] for row in rows):
        lines += ["", f"**{groups[group]}**", "",
                  "| workload | attn | GFLOP/s | of peak | " + " | ".join(names) + " |",
                  "| --- " * (4 + len(names)) + "|"]
        for workload in dict.fromkeys(row["workload"] for row in rows if row["group"] == group):
            by_peer = {row["peer"]: row for row in rows if row["workload"] == workload}
            attn = by_peer["attn"]
            ratios = (f"{by_peer[name]['ratio']:.2f}" if name in by_peer else "" for name in names)
            lines.append(f"| {workload} | {attn['median_s'] * 1e3:.3g} ms | {attn['gflops']:.1f} | "
                         f"{100 * attn['gflops'] / attn['peak_gflops']:.0f} % | " + " | ".join(ratios) + " |")
    return "\n".join(lines) + "\n"


def selected(plan, only, threads):
    for entry in plan["workloads"]:
        if not only or entry["name"] in only or entry["group"] in only:
            yield {**plan["defaults"], **entry, "threads": threads}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--attn", help="the program attn_peer of the build")
    source.add_argument("--join", nargs="+", type=pathlib.Path, help="results.json of earlier runs; measures nothing")
    parser.add_argument("--only", nargs="+", default=[], help="groups or names of workloads.json")
    parser.add_argument("--peers", nargs="*", default=list(peers.PEERS), choices=list(peers.PEERS))
    parser.add_argument("--program", nargs="+", default=[], metavar="NAME=PATH",
                        help="further programs of the line protocol, such as eigen=BUILD/benchmarks/eigen_peer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", help="processors to run on, for instance 1 or 0,1; default: all")
    parser.add_argument("--seconds", type=float, default=20, help="at most, for the rounds of one workload")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("comparison"))
    return parser.parse_args()


def measure_all(options, plan):
    cpus = {int(cpu) for cpu in options.cpus.split(",")} if options.cpus else None
    commands = {"attn": [options.attn]}
    commands.update((name, [sys.executable, str(HERE / "peers.py"), name]) for name in options.peers)
    commands.update((name, [path]) for name, path in (text.split("=", 1) for text in options.program))
    rows = []
    for work in selected(plan, options.only, options.threads):
        print(work["name"], flush=True)
        results = measure(commands, work, cpus, options.seconds)
        for row in results:
            print(f"    {row['peer']:16} {row['median_s'] * 1e3:10.3f} ms {row['gflops']:8.1f} GFLOP/s   "
                  f"x {row['ratio']:.2f}   difference {row['max_abs_diff']:.1e}", flush=True)
        rows += results
    return rows


def main():
    options = arguments()
    plan = json.loads((HERE / "workloads.json").read_text())
    if options.join:
        order = [entry["name"] for entry in plan["workloads"]]
        rows = [row for path in options.join for row in json.loads(path.read_text())]
        rows.sort(key=lambda row: order.index(row["workload"]))
    else:
        rows = measure_all(options, plan)
    if not rows:
        sys.exit("compare.py: nothing was measured")
    first = rows[0]
    heading = (f"{first['date']}, {first['machine']}, {first['threads']} thread(s), "
               f"peak {first['peak_gflops']:.0f} GFLOP/s. Peer columns: time of the peer / time of attn.")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    (options.out / "table.md").write_text(table(rows, plan["groups"], heading))
    (options.out / "chart.svg").write_text(chart.draw(rows, heading))
    print(f"wrote {options.out}/results.json, table.md, chart.svg")


if __name__ == "__main__":
    main()
