"""Variants of the kernels on fb237_v4, NBFNet PNA d 32 L 6 batch 64: the model alone and the real step, as ratios.

    PYTHONPATH=src python3 benchmarks/variants.py

1. every option alone and greedily: forward, and forward + backward, of the model on one fixed batch, each one CUDA graph,
   median of replays by CUDA events; `err` is the largest relative difference of scores or a parameter's gradient to the
   defaults (TF32 and atomics give about 1e-3).
2. the real step (Trainer.take_steps) of the defaults, of the greedy choice and of it less one option, defaults last again.
3. kernels of a step, defaults and choice.
"""
import argparse, gc, os, statistics, sys, time

sys.path.insert(0, "benchmarks")
import torch

import contextpool as cp
from contextpool.context.statistics import Statistics
from contextpool.graph.graph import Graph
from contextpool.kernels import triton as agg
from contextpool.kernels import triton_layer as layer
from contextpool.kernels import triton_relations as rel
from contextpool.kernels import triton_update as upd
from contextpool.models.nbfnet import NBFNet, NBFNetConfig
from contextpool.pool.batch import BatchBuilder, ContextConfig
from contextpool.train.config import TrainConfig
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries

BEGAN = time.time()
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=130.0)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--data", default="grail/fb237_v4")
options = parser.parse_args()
WHERE = {"agg": agg, "upd": upd, "layer": layer, "rel": rel}
M = ("BLOCK", "WARPS", "STAGES", "SHARES", "REGISTERS", "PROGRAMS")


def merged(*values):
    return {"upd.MERGED": True} | {f"upd.MERGED_{name}": value for name, value in zip(M, values)}


# (group, [(name, settings)]): of each group at most one is kept
GROUPS = [
    ("hubs", [("hubs aside", {"agg.HUBS_ASIDE": True})]),
    ("update", [("merged 32/8w/2st/2sh/128r", merged(32, 8, 2, 2, 128, 132)),
                ("merged 32/4w/1st/2sh/168r", merged(32, 4, 1, 2, 168, 198)),
                ("merged 64/8w/1st/2sh", merged(64, 8, 1, 2, None, 66))]),
    ("relations", [("relation maps together", {"rel.TOGETHER": True})]),
    ("masks", [("by mask, apart", {"agg.BY_MASK": True, "agg.APART": True})]),
    ("registers", [("tile regs 80", {"agg.TILE_REGISTERS": 80})]),
    ("runs", [("in runs", {"agg.IN_RUNS": True})]),
    ("warps", [("update 8 warps", {"upd.WARPS": 8})]),
]  # fmt: skip
DEFAULTS = {}
for _, choices in GROUPS:
    for _, settings in choices:
        for key in settings:
            module, name = key.split(".")
            DEFAULTS[key] = getattr(WHERE[module], name)


def use(settings):
    for key, value in (DEFAULTS | settings).items():
        module, name = key.split(".")
        setattr(WHERE[module], name, value)


def left():
    return options.seconds - (time.time() - BEGAN)


def median_ms(graph, repeats=15):
    for _ in range(3):
        graph.replay()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


class Alone:
    """The model on one batch."""

    def __init__(self, context):
        torch.manual_seed(0)
        self.model = NBFNet.for_graph(graph, NBFNetConfig(), context).cuda().train()
        rows = torch.arange(0, len(queries), len(queries) // 64, device="cuda")[:64]
        batch = queries.batch(rows)
        self.batch = BatchBuilder(graph, 6, context, Statistics.of(graph) if context else None).build(
            batch.head, batch.relation, batch.hidden_edge
        )
        self.parameters = list(self.model.parameters())

    def forward(self):
        with torch.no_grad():
            return [self.model(self.batch)]

    def backward(self):
        scores = self.model(self.batch)
        loss = torch.logsumexp(scores, 1).mean() - 0.5 * scores[:, 0].mean()
        return [scores.detach(), *torch.autograd.grad(loss, self.parameters, allow_unused=True)]

    def time(self, run):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run(), run()
        torch.cuda.current_stream().wait_stream(side)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            results = run()
        ms = median_ms(recorded)
        results = [None if one is None else one.clone() for one in results]
        del recorded
        gc.collect()
        torch.cuda.empty_cache()
        return ms, results

    def measure(self):
        (forward, _), (both, results) = self.time(self.forward), self.time(self.backward)
        return forward, both, results


def apart(results, expected):
    pairs = [(a, b) for a, b in zip(results, expected) if b is not None]
    least = 1e-3 * max(float(b.norm()) for _, b in pairs[1:])  # a gradient that is zero but for rounding has no ratio
    errors = [float((a - b).norm()) / max(float(b.norm()), least) for a, b in pairs]
    return max(error if error == error else float("inf") for error in errors)


def step_ms(context, profile=None):
    torch.manual_seed(0)
    model = NBFNet.for_graph(graph, NBFNetConfig(), context).cuda()
    builder = BatchBuilder(graph, 6, context, Statistics.of(graph) if context else None)
    trainer = Trainer(model, queries, builder, TrainConfig(batch_size=64), lambda _: 0.0)
    trainer.take_steps(16)
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        trainer.take_steps(options.steps)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start) / options.steps)
    if profile:
        show_kernels(trainer, profile)
    del trainer, model, builder
    gc.collect()
    torch.cuda.empty_cache()
    return statistics.median(times)


def show_kernels(trainer, title, steps=10, most=40):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        trainer.take_steps(steps)
    kernels = [event for event in recorded.key_averages() if event.device_type.name == "CUDA"]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels) / steps / 1e3
    lines = [f"{title}: {total:.2f} ms in {sum(event.count for event in kernels) / steps:.0f} kernels a step"]
    lines += [f"  {event.self_device_time_total / steps / 1e3:6.3f} {event.count / steps:6.1f} x {event.key[:95]}"
              for event in kernels]  # fmt: skip
    folder = os.environ.get("OUT")
    if folder:
        with open(f"{folder}/kernels.txt", "a") as file:
            file.write("\n".join(lines) + "\n\n")
    PROFILES.append("\n".join(lines[: most // (1 if folder is None else 2)]))


PROFILES, TABLE = [], []


def note(line):
    TABLE.append(line)
    print(line, flush=True)


torch.set_float32_matmul_precision("high")
data = cp.load_dataset(options.data)
graph = Graph.from_triples(data.training_graph).to("cuda")
queries = TrainingQueries.of(data.training_queries, graph, data.training_filter).to("cuda")
CONTEXTS = {"plain": None, "context": ContextConfig()}
bench = {name: Alone(context) for name, context in CONTEXTS.items()}
use({})
base = {name: one.measure() for name, one in bench.items()}
note(f"{'model alone, ms (ratio to defaults)':44}  plain fwd  fwd+bwd  ratio | ctx fwd  fwd+bwd  ratio |   err")


def tried(title, settings):
    """Sum of both ratios; None where it fails or is wrong."""
    use(settings)
    try:
        found = {name: one.measure() for name, one in bench.items()}
    except Exception as error:  # a variant that does not compile or run is a row of its own
        note(f"{title:44}  {type(error).__name__}: {str(error)[:90]}")
        if "CUDA error" in str(error) or "illegal" in str(error):
            raise
        return None
    ratios = {name: found[name][1] / base[name][1] for name in bench}
    err = max(apart(found[name][2], base[name][2]) for name in bench)
    p, c = found["plain"], found["context"]
    note(f"{title:44}  {p[0]:9.3f} {p[1]:8.3f} {ratios['plain']:6.3f} | {c[0]:7.3f} {c[1]:8.3f} "
         f"{ratios['context']:6.3f} | {err:.0e}")  # fmt: skip
    return sum(ratios.values()) if err < 2e-2 else None


chosen, best = {}, tried("defaults", {})
kept = []
for group, choices in GROUPS:
    if left() < 38:
        note(f"(no time left for {group} and what follows)")
        break
    found = [(tried(f"+ {name}", chosen | settings), name, settings) for name, settings in choices]
    found = [one for one in found if one[0] is not None and one[0] < best - 0.004]
    if found:
        best, name, settings = min(found, key=lambda one: one[0])
        chosen |= settings
        kept.append((name, settings))
        note(f"    kept: {name}")

note(f"\n{'real step, ms':44}    plain  ratio | context  ratio")
first = {}


def stepped(title, settings, profile=False):
    use(settings)
    found = {name: step_ms(context, f"{title}, {name}" if profile else None) for name, context in CONTEXTS.items()}
    first.update({} if first else found)
    ratio = {name: found[name] / first[name] for name in found}
    note(f"{title:44} {found['plain']:8.2f} {ratio['plain']:6.3f} | {found['context']:7.2f} {ratio['context']:6.3f}")


stepped("defaults", {}, profile=True)
stepped("all that was kept", chosen, profile=True)
for name, settings in kept:
    if left() < 12:
        break
    stepped(f"  all but {name}", {key: value for key, value in chosen.items() if key not in settings})
if left() > 4:
    stepped("defaults again", {})
for text in PROFILES:
    print(text)
print("\n" + "\n".join(TABLE))
print("settings kept:", chosen, f"\n{time.time() - BEGAN:.0f} s")
