#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX on all GPUs of one process: shard_map with every collective, and a data-parallel training step.

    python3 tests/gpu/clients/jax_client.py [--cpu N] [--json FILE]
        --cpu: N devices of the CPU, which tries the logic without GPUs

XLA finds libnccl.so.2 with dlopen, so that a preloaded one is taken. It calls ncclCommInitRankConfig from one
thread a GPU, then ncclAllReduce, ncclAllGather, ncclReduceScatter, ncclAlltoAll, ncclBroadcast and grouped
ncclSend and ncclRecv, and asks ncclCommGetAsyncError. Values are checked against formulas.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from clients import Skip, need  # noqa: E402

TIMES = 20


def check(np, got, wanted, what):
    np.testing.assert_array_equal(np.asarray(got), wanted, err_msg=what)


class Mesh:
    """All devices in a row, and how a function of one device's block is run on all of them."""

    def __init__(self, jax, np):
        from jax.sharding import Mesh as JaxMesh, NamedSharding, PartitionSpec
        self.jax, self.np, self.spec = jax, np, PartitionSpec
        self.devices = np.array(jax.devices())
        self.n = len(self.devices)
        self.mesh = JaxMesh(self.devices, ("d",))
        self.cut = NamedSharding(self.mesh, PartitionSpec("d"))
        self.shard_map = getattr(jax, "shard_map", None)
        if self.shard_map is None:
            from jax.experimental.shard_map import shard_map
            self.shard_map = shard_map

    def put(self, blocks):
        """One block a device, joined along the first axis."""
        return self.jax.device_put(self.np.concatenate(blocks), self.cut)

    def function(self, body):
        return self.jax.jit(self.shard_map(body, mesh=self.mesh, in_specs=self.spec("d"), out_specs=self.spec("d")))


def collectives(m):
    """Every collective, of several types and sizes."""
    jax, np, n = m.jax, m.np, m.n
    lax = jax.lax
    for size in (n, 1024 * n, (1 << 18) * n):
        for dtype in ("float32", "bfloat16", "int32", "uint8"):
            blocks = [np.full(size, rank + 1).astype(jax.numpy.dtype(dtype)) for rank in range(n)]
            x = m.put(blocks)
            total = n * (n + 1) // 2
            for name, reduce, wanted in (("psum", lax.psum, total), ("pmax", lax.pmax, n), ("pmin", lax.pmin, 1)):
                check(np, m.function(lambda b, reduce=reduce: reduce(b, "d"))(x).astype("float32"),
                      np.full(n * size, wanted, np.float32), f"{name} of {size} {dtype}")
            gathered = m.function(lambda b: lax.all_gather(b, "d", tiled=True))(x)
            check(np, gathered, np.concatenate([np.concatenate(blocks)] * n), f"all_gather of {size} {dtype}")
            rotated = m.function(lambda b: lax.ppermute(b, "d", [(r, (r + 1) % n) for r in range(n)]))(x)
            check(np, rotated, np.concatenate([blocks[(r - 1) % n] for r in range(n)]), f"ppermute of {size} {dtype}")
        numbers = [np.arange(size, dtype=np.float32) + 1000 * rank for rank in range(n)]
        x = m.put(numbers)
        part = size // n
        swapped = m.function(lambda b: lax.all_to_all(b, "d", 0, 0, tiled=True))(x)
        check(np, swapped, np.concatenate([numbers[s][r * part:(r + 1) * part] for r in range(n) for s in range(n)]),
              f"all_to_all of {size}")
        scattered = m.function(lambda b: lax.psum_scatter(b, "d", tiled=True))(x)
        check(np, scattered, np.sum(numbers, axis=0, dtype=np.float32), f"psum_scatter of {size}")
        if n > 2:  # only some send: the other ranks get zeros
            some = m.function(lambda b: lax.ppermute(b, "d", [(0, n - 1)]))(x)
            check(np, some, np.concatenate([np.zeros((n - 1) * size, np.float32), numbers[0]]), "one ppermute")


def halves(m):
    """Groups of two devices, side by side: XLA splits a communicator for them or makes new ones."""
    jax, np = m.jax, m.np
    if m.n < 4 or m.n % 2:
        return
    from jax.sharding import Mesh as JaxMesh, NamedSharding, PartitionSpec
    mesh = JaxMesh(m.devices.reshape(2, -1), ("a", "b"))
    x = jax.device_put(np.arange(m.n, dtype=np.float32).repeat(1000), NamedSharding(mesh, PartitionSpec(("a", "b"))))
    add = jax.jit(m.shard_map(lambda b: jax.lax.psum(b, "b"), mesh=mesh, in_specs=PartitionSpec(("a", "b")),
                              out_specs=PartitionSpec(("a", "b"))))
    rows = np.arange(m.n, dtype=np.float32).reshape(2, -1).sum(axis=1)
    check(np, add(x), rows.repeat(1000 * m.n // 2), "psum of halves")


def training(m):
    """A data-parallel step whose all-reduces the compiler puts in: as on one device."""
    jax, np = m.jax, m.np
    jnp = jax.numpy
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(size=shape).astype(np.float32) / 8 for name, shape in
               (("first", (64, 128)), ("second", (128, 1)))}
    data = rng.normal(size=(64 * m.n, 64)).astype(np.float32)
    goals = np.sin(data.sum(axis=1, keepdims=True) / 8).astype(np.float32)

    def loss_of(w, x, y):
        hidden = jnp.tanh(jnp.dot(x, w["first"], precision="highest"))
        return jnp.mean((jnp.dot(hidden, w["second"], precision="highest") - y) ** 2)

    @jax.jit
    def step(w, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(w, x, y)
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, gradients), loss

    def train(x, y):
        w, losses = weights, []
        for _ in range(30):
            w, loss = step(w, x, y)
            losses.append(float(loss))
        return losses

    losses = train(jax.device_put(data, m.cut), jax.device_put(goals, m.cut))
    alone = train(jax.device_put(data, m.devices[0]), jax.device_put(goals, m.devices[0]))
    np.testing.assert_allclose(losses, alone, rtol=1e-4)
    assert losses[-1] < 0.9 * losses[0], f"the loss did not fall: {losses}"


def time_of_psum(m, n_bytes):
    """us of a psum of float32, alone in a jitted function."""
    x = m.put([m.np.ones(n_bytes // 4, m.np.float32)] * m.n)
    add = m.function(lambda b: m.jax.lax.psum(b, "d"))
    add(x).block_until_ready()
    times = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        add(x).block_until_ready()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def run(options):
    if options.cpu:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.cpu}"
    os.environ["JAX_PLATFORMS"] = "cpu" if options.cpu else "cuda"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    np = need("numpy")
    jax = need("jax")
    try:
        n = len(jax.devices())
    except RuntimeError as error:
        raise Skip(f"jax finds no GPU: {error}") from error
    if n < 2:
        raise Skip(f"jax sees {n} device, two are needed")
    begin = time.perf_counter()
    m = Mesh(jax, np)
    collectives(m)
    halves(m)
    training(m)
    times = {f"us of psum of {n_bytes} B": time_of_psum(m, n_bytes) for n_bytes in (4096, 64 << 20)}
    seconds = time.perf_counter() - begin
    print(f"jax: ok on {n} devices, {seconds:.1f} s jax {jax.__version__}, "
          + ", ".join(f"{value:.1f} {name}" for name, value in times.items()), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"times": times}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--json")
    options = parser.parse_args()
    try:
        run(options)
    except Skip as reason:
        print(f"jax: skipped: {reason}")


if __name__ == "__main__":
    main()
