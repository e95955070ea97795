# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre reproduce`: values that papers or a second computation give, to 1 %, and the pages.

    python3 tests/python/papers.py CASE BUILD_DIR SOURCE_DIR      (CASE: the name of a case_* function)
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True


def near(value, due):
    assert abs(value - due) <= 0.01 * due, (value, due)


def case_values(_build, _source):
    import bine_groups
    import bruck_radix
    import pat_buffers
    import quantized
    import skew
    import straggler
    import swing_tori as swing
    # Swing's and doubling's congestion: counted in another way, over all links of the whole torus
    for dims, own, pairs in (((16,), 1.53, 3.73), ((64,), 2.14, 5.59), ((8, 8), 1.10, 2.48), ((64, 64), 1.19, 2.93),
                             ((8, 8, 8), 1.03, 2.25)):
        near(swing.congestion(swing.swing_peer, dims, True), own)
        near(swing.congestion(swing.xor_peer, dims, False), pairs)
    near(swing.congestion(swing.swing_peer, (64, 16), True), 1.22)
    near(swing.congestion(swing.swing_peer, (128, 8), True), 1.41)
    assert [swing.swing_peer(0, k, 64) for k in range(5)] == [1, 63, 3, 59, 11]  # the paper's table of rho
    for dims, stall in (((64, 16), 1.05), ((128, 8), 1.12), ((256, 4), 1.25)):
        near(swing.bucket_stall(dims), stall)
    worst = {"swing": 1.19, "doubling": 2.93}
    for n_bytes, gain in ((32, 1.39), (8 << 20, 1.97), (128 << 20, 0.98)):
        near(swing.gain((64, 64), n_bytes, worst)[0], gain)
    # Every contribution reaches its owner exactly once, which a wrong peer would break.
    for n in (8, 64):
        held = [{rank} for rank in range(n)]
        for k in range(n.bit_length() - 2, -1, -1):
            held = [held[rank] | held[swing.swing_peer(rank, k, n)] for rank in range(n)]
        assert all(len(each) == n for each in held)
    groups = [rank // 12 for rank in range(1024)]
    ratio = bine_groups.crossing(swing.swing_peer, groups) / bine_groups.crossing(swing.xor_peer, groups)
    assert 1.035 <= ratio <= 1.105, ratio  # 1.04 to 1.10 in a count over all sizes
    assert 0.71 <= float(bine_groups.run("").found.split()[1]) <= 0.83
    assert [pat_buffers.rounds(64, blocks) for blocks in (1, 8, 32)] == [95, 17, 12]
    assert [bruck_radix.counts(64, radix) for radix in (2, 4, 8, 64)] == [(6, 192), (9, 144), (14, 112), (63, 63)]
    near(straggler.bound(8, 0.5), 1.143)
    near(straggler.bound(64, 0.5), 1.016)
    # A block of 1 and -1 is exact in 8 bits; 0.4 of a step is lost. Each hop of a ring loses again, an owner once.
    assert quantized.rounded([127.0, 1.4, -127.0], 8) == [127.0, 1.0, -127.0]
    assert quantized.two_shot([[127.0, 0.4]] * 2, 8) == [254.0, 0.0]
    equal = [[float(skew.N_BYTES) / 64] * 64 for _ in range(64)]
    direct, balanced = skew.times_us(equal)
    near(direct, 56 / 64 * skew.N_BYTES / skew.NIC / 1e3)  # 56 of 64 GPUs are on other servers
    near(balanced, direct)
    one = [[0.0] * 64 for _ in range(64)]
    one[0][8] = 64e6  # one pair: 1 NIC, or all 8, and 7 / 8 over NVLink twice
    direct, balanced = skew.times_us(one)
    near(direct, 64e6 / 50 / 1e3)
    near(balanced, (8e6 / 50 + 2 * 56e6 / 450) / 1e3)


def case_pages(build, source):
    """Each figure that takes a second or less: a page, its first line, a CSV. The leaf keeps the bound."""
    tools = os.path.join(build, "bench")
    done = subprocess.run([os.path.join(tools, "gyre"), "reproduce"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in done.stdout.splitlines()]
    with open(os.path.join(source, "docs", "papers.md"), encoding="utf-8") as file:
        rows = file.read()
    assert all(f"| `{name}` |" in rows for name in names), names
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([os.path.join(tools, "gyre"), "reproduce", "all", "--output", folder], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stderr
        for name in names:
            with open(os.path.join(folder, f"{name}.md"), encoding="utf-8") as file:
                line = file.readline()
            assert line.startswith(("*showed*: ", "*did not show*: ", "*cannot be tested here: ")), line
            assert f"{name}: {line}" in done.stdout, done.stdout
            assert os.path.getsize(os.path.join(folder, f"{name}.csv")) > 50
        # Hops, messages and bytes over links by hand: bucket has 2 * 14 steps of 1.2 us, rings 2 * 63; all but a 64th of
        # the vector leaves over four links; Swing's busiest links carry 1.10 times that.
        with open(os.path.join(folder, "swing-simulated.csv"), encoding="utf-8") as file:
            rows = [[float(cell) for cell in row.split(",")] for row in file.read().splitlines()[1:]]
            ideal = 2 * rows[-1][0] * 63 / 64 / 200e3
            near(rows[0][4], 28 * 1.2)
            near(rows[0][5], 126 * 1.2)
            near(rows[-1][4], ideal + 28 * 1.2)
            near(rows[-1][2], 1.10 * ideal)
        with open(os.path.join(folder, "straggler.csv"), encoding="utf-8") as file:
            for row in file.read().splitlines()[1:]:
                n, f, ring, leaf, bound, split = map(float, row.split(","))
                near(ring, 1 / f) if n == 8 else None
                assert leaf >= 0.99 * bound, (n, f, leaf, bound)
                assert split <= 1.001 * min(bound, 1 / f) and split >= 1, (n, f, split)  # both are parts of it
    done = subprocess.run([os.path.join(tools, "gyre"), "reproduce", "nope"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "there is no figure nope" in done.stderr, done.stderr


if __name__ == "__main__":
    case, build_folder, source_folder = sys.argv[1:]
    sys.path[:0] = [os.path.join(source_folder, "bench", "python"),
                    os.path.join(source_folder, "bench", "python", "figures")]
    globals()[f"case_{case}"](build_folder, source_folder)
