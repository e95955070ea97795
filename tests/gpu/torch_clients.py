#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs as users write them, one a case: nothing here knows which library carries them.

    torchrun --nproc-per-node=N torch_clients.py CASE... [--backend nccl|gloo] [--json FOLDER/%s-gyre-1.json]
    tests/gpu/torch_clients.py --report FOLDER       compares the files CASE-ENGINE-ROUND.json there

tests/gpu/run_clients runs all cases on gyre and on NCCL. With --backend gloo they run without a GPU
(what gloo does not have is left out), which tries their own logic. Values are checked against
formulas; a wrong one, an exception or a leak is exit status 1.
"""
import argparse
import hashlib
import json
import os
import statistics
import sys
import time
import traceback

from clients import Skip
from clients.fsdp import accelerate, fsdp2
from clients.report import report
from clients.tensor_parallel import tensor_parallel

DDP_STEPS = 200
ROUNDS = 50  # of making and destroying process groups


class Leak(Exception):
    """All ranks found it, and nothing else is wrong: the next case can run."""


class Client:
    """One rank: its place, its device, and how process groups are made."""

    def __init__(self, backend, on_cpu):
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.backend = torch, dist, backend
        self.rank = int(os.environ["RANK"])
        self.n = int(os.environ["WORLD_SIZE"])
        if not on_cpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
        # torchrun's agent serves the store; a prefix a round keeps the rounds apart.
        self.store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                                   is_master=False)
        self.n_inits = 0

    def init(self, device_id=None):
        from datetime import timedelta
        self.n_inits += 1
        store = self.dist.PrefixStore(f"clients{self.n_inits}", self.store)
        self.dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=self.n,
                                     timeout=timedelta(seconds=60), device_id=device_id)

    def full(self, value, n=1000, dtype=None):
        return self.torch.full((n,), value, dtype=dtype or self.torch.float32, device=self.device)

    def sync(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def check(self, tensor, expected, what):
        """Every element equals `expected` (a number, or a tensor of the same shape)."""
        self.sync()
        wanted = expected if self.torch.is_tensor(expected) else self.torch.full_like(tensor, expected)
        if not self.torch.equal(tensor, wanted):
            wrong = (tensor != wanted).nonzero().flatten()
            at = int(wrong[0])
            raise AssertionError(f"{what} on rank {self.rank}: element {at} is "
                                 f"{tensor.flatten()[at].item()}, not {wanted.flatten()[at].item()} "
                                 f"({len(wrong)} of {tensor.numel()} wrong)")


# ---- the cases -----------------------------------------------------------------------------------

def collectives(c):
    """Every collective of torch.distributed, several types, several sizes."""
    torch, dist, n, rank = c.torch, c.dist, c.n, c.rank
    total = n * (n - 1) // 2
    for size in (1, 1000, 1 << 20):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            x = c.full(rank, size, dtype)
            dist.all_reduce(x)
            c.check(x, total, f"all_reduce sum {dtype}")
            x = c.full(rank + 1, size, dtype)
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
            c.check(x, n, f"all_reduce max {dtype}")
        blocks(c, size)
        rooted(c, size)
    if c.backend == "nccl":
        x = c.full(float(rank))
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        c.sync()
        assert torch.allclose(x, c.full(total / n)), "all_reduce avg"
        x = c.full(float(rank))
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
        c.check(x, total * 0.5, "all_reduce premul_sum")
        dist.barrier(device_ids=[c.device.index])
    else:
        dist.barrier()
    work = dist.all_reduce(c.full(1.0), async_op=True)
    work.wait()
    c.sync()


def blocks(c, size):
    """Collectives whose buffers are made of one block a rank."""
    torch, dist, n, rank = c.torch, c.dist, c.n, c.rank
    by_rank = torch.arange(n, dtype=torch.float32, device=c.device).repeat_interleave(size)
    out = c.full(-1.0, n * size)
    dist.all_gather_into_tensor(out, c.full(rank, size))
    c.check(out, by_rank, "all_gather_into_tensor")
    parts = [c.full(-1.0, size) for _ in range(n)]
    dist.all_gather(parts, c.full(rank, size))
    c.check(torch.cat(parts), by_rank, "all_gather")
    out = c.full(-1.0, size)
    dist.reduce_scatter_tensor(out, by_rank.clone())
    c.check(out, rank * n, "reduce_scatter_tensor")
    if c.backend == "nccl":
        dist.reduce_scatter(out, list(by_rank.chunk(n)))
        c.check(out, rank * n, "reduce_scatter")
        dist.all_to_all(parts, [c.full(rank * 100 + to, size) for to in range(n)])
        c.check(torch.cat(parts), by_rank * 100 + rank, "all_to_all")
    out = c.full(-1.0, n * size)
    dist.all_to_all_single(out, torch.cat([c.full(rank * 100 + to, size) for to in range(n)]))
    c.check(out, by_rank * 100 + rank, "all_to_all_single")
    # Rank r sends r + 1 elements to everyone: uneven parts, over point-to-point calls.
    out = c.full(-1.0, total_uneven(n))
    dist.all_to_all_single(out, c.full(rank, n * (rank + 1)), [r + 1 for r in range(n)],
                           [rank + 1] * n)
    c.check(out, torch.cat([c.full(float(r), r + 1) for r in range(n)]), "uneven all_to_all_single")


def total_uneven(n):
    return n * (n + 1) // 2


def rooted(c, size):
    dist, n, rank = c.dist, c.n, c.rank
    for root in {0, n - 1}:
        x = c.full(rank + 7, size)
        dist.broadcast(x, src=root)
        c.check(x, root + 7, "broadcast")
        x = c.full(rank, size)
        dist.reduce(x, dst=root)
        if rank == root:
            c.check(x, n * (n - 1) // 2, "reduce")
        parts = [c.full(-1.0, size) for _ in range(n)] if rank == root else None
        dist.gather(c.full(rank, size), parts, dst=root)
        if rank == root:
            for sender in range(n):
                c.check(parts[sender], sender, "gather")
        x = c.full(-1.0, size)
        dist.scatter(x, [c.full(to * 3, size) for to in range(n)] if rank == root else None,
                     src=root)
        c.check(x, rank * 3, "scatter")


def make_model(c, width):
    torch = c.torch
    torch.manual_seed(1)
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)).to(c.device)


def train(c, width):
    """DDP_STEPS steps; the losses, a hash of the final parameters, and ms per step."""
    torch = c.torch
    model = torch.nn.parallel.DistributedDataParallel(
        make_model(c, width), device_ids=[c.device.index] if c.device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + c.rank)
    data = torch.randn(8, 64, width, generator=generator).to(c.device)
    goals = torch.sin(data.sum(dim=2, keepdim=True) / width ** 0.5)
    losses, times = [], []
    c.sync()
    begin = time.perf_counter()
    for step in range(DDP_STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[step % 8]), goals[step % 8])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % 10 == 9:
            c.sync()
            now = time.perf_counter()
            times.append((now - begin) * 100)
            begin = now
    all_losses = torch.stack(losses)
    c.dist.all_reduce(all_losses)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return {"losses": (all_losses / c.n).cpu().tolist(), "hash": digest.hexdigest(),
            "ms_per_iteration": statistics.median(times[5:]), "width": width}


def ddp(c):
    """A small network in DDP, twice: the loss falls, all ranks agree, both runs have the same bits."""
    c.torch.use_deterministic_algorithms(True)
    width = int(os.environ.get("DDP_WIDTH", 1024 if c.device.type == "cuda" else 128))
    first, second = train(c, width), train(c, width)
    assert first["losses"][-1] < 0.7 * first["losses"][0], f"the loss did not fall: {first['losses']}"
    assert first["losses"] == second["losses"], "two runs differ in their losses"
    assert first["hash"] == second["hash"], "two runs differ in their parameters"
    hashes = [None] * c.n
    c.dist.all_gather_object(hashes, first["hash"])
    assert len(set(hashes)) == 1, f"ranks differ in their parameters: {hashes}"
    c.torch.use_deterministic_algorithms(False)
    second["hash_of_first"] = first["hash"]
    second["text"] = f"{second['ms_per_iteration']:.3f} ms/iteration, loss {second['losses'][0]:.4f} -> " \
                     f"{second['losses'][-1]:.4f}, parameters {second['hash'][:12]}"
    return second


def sharded(c):
    """Training with sharded parameters by hand: all_gather_into_tensor, reduce_scatter_tensor."""
    torch, dist, n, rank = c.torch, c.dist, c.n, c.rank
    size = 4096
    torch.manual_seed(3)
    whole = torch.randn(n * size, device=c.device)
    shard = whole[rank * size:(rank + 1) * size].clone()
    target = torch.linspace(-1, 1, n * size, device=c.device) * (rank + 1)
    target_sum = torch.linspace(-1, 1, n * size, device=c.device) * total_uneven(n)
    for _ in range(20):
        gathered = torch.empty(n * size, device=c.device)
        dist.all_gather_into_tensor(gathered, shard)
        gathered.requires_grad_()
        ((gathered - target) ** 2).sum().backward()
        grad = torch.empty(size, device=c.device)
        dist.reduce_scatter_tensor(grad, gathered.grad)
        shard -= 0.1 / n * grad
        whole -= 0.1 / n * (2 * n * whole - 2 * target_sum)
    c.sync()
    mine = whole[rank * size:(rank + 1) * size]
    assert torch.allclose(shard, mine, rtol=1e-4, atol=1e-4), \
        f"shard of rank {rank} is off by {(shard - mine).abs().max().item()}"


def pipeline(c):
    """Stages pass micro-batches forwards and back, with send, recv and batched isend, irecv."""
    dist, n, rank = c.dist, c.n, c.rank
    for batch in range(8):
        x = c.full(float(batch), 50000)
        if rank > 0:
            dist.recv(x, src=rank - 1)
        c.check(x, batch + rank, "forward")
        x += 1
        if rank < n - 1:
            dist.send(x, dst=rank + 1)
            dist.recv(x, src=rank + 1)
        c.check(x, batch + n, "back")
        if rank > 0:
            dist.send(x, dst=rank - 1)
    incoming = c.full(-1.0)
    ring = [dist.P2POp(dist.isend, c.full(float(rank)), (rank + 1) % n),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    c.check(incoming, (rank - 1) % n, "ring")


def subgroups(c):
    """Halves and pairs, also overlapping, used in turn with the world."""
    dist, n, rank = c.dist, c.n, c.rank
    sets = [list(range(n // 2)) or [0], list(range(n // 2, n)), [0, n - 1], list(range(0, n, 2))]
    sets = [sorted(set(ranks)) for ranks in sets]
    groups = [dist.new_group(ranks) for ranks in sets]
    for round_number in range(10):
        for ranks, group in zip(sets, groups):
            if rank not in ranks:
                continue
            x = c.full(rank + round_number)
            dist.all_reduce(x, group=group)
            c.check(x, sum(ranks) + round_number * len(ranks), f"all_reduce of {ranks}")
        x = c.full(1.0)
        dist.all_reduce(x)
        c.check(x, n, "all_reduce of the world")
    for ranks, group in zip(sets, groups):
        if rank in ranks:
            dist.destroy_process_group(group)


def graph(c):
    """An all-reduce captured in a CUDA graph, replayed."""
    torch, dist, n, rank = c.torch, c.dist, c.n, c.rank
    if c.device.type != "cuda":
        raise Skip("no GPU")
    x = c.full(float(rank))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            dist.all_reduce(x.clone())
    torch.cuda.current_stream().wait_stream(side)
    c.sync()
    captured = torch.cuda.CUDAGraph()
    out = torch.empty_like(x)
    with torch.cuda.graph(captured):
        out.copy_(x)
        dist.all_reduce(out)
        out.mul_(2)
    for replay in range(20):
        x.fill_(rank + replay)
        captured.replay()
        c.check(out, 2 * (n * (n - 1) // 2 + n * replay), f"replay {replay}")
    y = c.full(1.0)  # and outside of it, in between
    dist.all_reduce(y)
    c.check(y, n, "all_reduce after the replays")
    captured.replay()
    c.check(out, 2 * (n * (n - 1) // 2 + n * 19), "last replay")
    del captured


def recreate(c):
    """Process groups made and destroyed ROUNDS times leave no memory and no descriptors behind."""
    torch, dist = c.torch, c.dist

    def used():
        c.sync()
        n_files = len(os.listdir("/proc/self/fd"))
        if c.device.type != "cuda":
            return n_files, 0
        free, total = torch.cuda.mem_get_info()
        return n_files, (total - free) >> 20

    after = []
    dist.destroy_process_group()
    for _ in range(ROUNDS):
        c.init()
        x = c.full(1.0, 1 << 16)
        dist.all_reduce(x)
        c.check(x, c.n, "all_reduce")
        dist.destroy_process_group()
        after.append(used())
    c.init()
    # The first rounds load libraries and fill pools. Other ranks of the job are on other GPUs, so
    # the device's own figure is this rank's.
    grown = [None] * c.n
    dist.all_gather_object(grown, (after[-1][0] - after[4][0], after[-1][1] - after[4][1]))
    files, mib = (max(figures) for figures in zip(*grown))
    text = f"{files:+d} descriptors, {mib:+d} MiB from round 5 to {ROUNDS}"
    if files > 4 or mib > 32:
        raise Leak(text)
    return text


def two_groups(c):
    """Two process groups of all ranks used in turn, without waiting in between."""
    dist, n = c.dist, c.n
    groups = [dist.new_group(list(range(n))) for _ in range(2)]
    sums = [c.full(1.0, 100000) for _ in groups]
    for _ in range(5):
        works = []
        for group, x in zip(groups, sums):
            works.append(dist.all_reduce(x, group=group, async_op=True))
        for work in works:
            work.wait()
        for x in sums:
            x /= n
    for x in sums:
        c.check(x, 1.0, "two groups at once")
    for i in range(50):
        x = c.full(float(i))
        for group in groups:
            dist.all_reduce(x, group=group)
        c.check(x, float(i * n * n), "two groups in turn")


def eager(c):
    """With a device named at init, communicators are made at once and groups are splits of them."""
    if c.device.type != "cuda":
        raise Skip("no GPU")
    c.dist.destroy_process_group()
    c.init(c.device)
    x = c.full(float(c.rank))
    c.dist.all_reduce(x)
    c.check(x, c.n * (c.n - 1) // 2, "all_reduce")
    subgroups(c)


def shrink(c):
    """The last rank is left out; the others go on in a smaller default group."""
    dist, n, rank = c.dist, c.n, c.rank
    if c.device.type != "cuda":
        raise Skip("no GPU")
    if not hasattr(dist, "shrink_group"):
        raise Skip("this PyTorch has no shrink_group")
    dist.destroy_process_group()
    c.init(c.device)
    x = c.full(float(rank))
    dist.all_reduce(x)
    c.check(x, n * (n - 1) // 2, "all_reduce before")
    if rank < n - 1:
        dist.shrink_group([n - 1])
        x = c.full(float(rank))
        dist.all_reduce(x)
        c.check(x, (n - 1) * (n - 2) // 2, "all_reduce without the last rank")
        c.store.add("shrunk", 1)
    while c.store.add("shrunk", 0) < n - 1:
        time.sleep(0.05)
    dist.destroy_process_group()
    c.init()


CASES = {f.__name__: f for f in (collectives, ddp, sharded, pipeline, subgroups, graph, recreate,
                                 two_groups, eager, shrink, tensor_parallel, fsdp2, accelerate)}


# ---- running and reporting -----------------------------------------------------------------------

def run(c, name, path):
    """Whether the case is right; how it ended is printed by rank 0."""
    c.init()
    begin = time.perf_counter()
    leak = skipped = result = None
    try:
        result = CASES[name](c)
    except Leak as error:
        leak = error
    except Skip as reason:
        skipped = reason
    c.sync()
    seconds = time.perf_counter() - begin
    c.dist.barrier()
    c.dist.destroy_process_group()
    if c.rank != 0:
        return leak is None
    if leak is not None:
        print(f"{name}: leaks {leak}", flush=True)
        return False
    if skipped is not None:
        print(f"{name}: skipped: {skipped}", flush=True)
        return True
    text = result["text"] if isinstance(result, dict) else result or ""
    print(f"{name}: ok on {c.n} ranks, {seconds:.1f} s {text}", flush=True)
    if path and isinstance(result, dict):
        with open(path.replace("%s", name), "w", encoding="utf-8") as file:
            json.dump(result, file)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="one of " + ", ".join(CASES))
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cuda for nccl, cpu for gloo")
    parser.add_argument("--json", help="what cases measured goes here; %%s is the case")
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--report", metavar="FOLDER")
    options = parser.parse_args()
    if options.list:
        print(*CASES)
        return 0
    if options.report:
        return report(options.report)
    unknown = [name for name in options.cases if name not in CASES]
    if unknown or not options.cases:
        parser.error(f"no such case: {' '.join(unknown)}" if unknown else "name a case")
    try:
        device = options.device or ("cuda" if options.backend == "nccl" else "cpu")
        client = Client(options.backend, device == "cpu")
        n_failed = sum(not run(client, name, options.json) for name in options.cases)
    except BaseException:  # the others wait for this rank: end at once, the launcher ends them
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    return 1 if n_failed > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
