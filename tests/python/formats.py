# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre import` and `gyre export`: small schedules of each format are translated, proved and made smaller;
wrong ones are refused with their line; what is exported reads back as the same programs.

    python3 tests/python/formats.py CASE BUILD_DIR SOURCE_DIR      (CASE: the name of a case_* function)
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True


def run(build, *words, status=0):
    done = subprocess.run([os.path.join(build, "bench", words[0]), *words[1:]], capture_output=True, text=True, check=False,
                          timeout=120)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text if isinstance(text, str) else json.dumps(text, indent=1))
    return path


def shape_of(text, with_order=False):
    """The steps of programs without names and depths; inputs sorted unless their order counts."""
    lines = []
    for line in text.split("\n"):
        match = re.match(r"(  chunk.*: )(.*)( -> .*)", line.replace(" with_next", ""))
        if match:
            inputs = match[2].split(" + ")
            lines.append(match[1] + " + ".join(inputs if with_order else sorted(inputs)) + match[3])
        elif line.startswith(("ranks", "worker")):
            lines.append(re.sub(r" depth.*", "", line))
    return lines


def case_round(build, _source, folder):
    """What is exported to MSCCL's XML reads back, after the passes, as the programs that it was made of."""
    for algo, coll, ranks in (("ring", "all_reduce", 4), ("doubling", "all_reduce", 4), ("direct", "all_reduce", 3),
                              ("ring", "all_gather", 5), ("tree", "broadcast", 4), ("direct", "all_to_all", 3)):
        shape = ["--algo", algo, "--coll", coll, "--ranks", str(ranks)]
        xml = os.path.join(folder, "a.xml")
        run(build, "gyre", "export", "msccl", "--output", xml, *shape)
        found = shape_of(run(build, "gyre", "import", xml).stdout)
        due = shape_of(run(build, "schedule", *shape).stdout)
        if (algo, coll) in (("tree", "broadcast"), ("direct", "all_to_all")):  # workers may be cut otherwise
            found, due = (sorted(re.sub(r"/\d|chunk \d", "", line) for line in lines if "chunk " in line)
                          for lines in (found, due))
        assert found == due, (algo, coll, found, due)
    done = run(build, "gyre", "export", "msccl", "--output", xml, "--algo", "ring", "--coll", "gather", "--ranks", "2",
               status=1)
    assert "gyre export:" in done.stderr, done.stderr


def case_msccl(build, source, folder):
    """Instances fold into one, all-pairs becomes steps with many inputs, and errors have file and line."""
    sys.path.insert(0, os.path.join(source, "tests", "bench"))
    import msccl_algorithms as msccl
    path = write(folder, "ring.xml", msccl.ring_all_reduce(4, n_channels=4))
    done = run(build, "gyre", "import", path)
    ring = run(build, "schedule", "--algo", "ring", "--coll", "all_reduce", "--ranks", "4").stdout
    # The chunks start at other ranks, but take the routes of gyre's ring, whose programs stand for them.
    assert "routes of gyre's ring" in done.stderr and done.stdout == ring, (done.stderr, done.stdout)
    # Between two ranks ring and two-shot take the same routes, of which one has fused kernels.
    done = run(build, "gyre", "import", write(folder, "two.xml", msccl.ring_all_reduce(2)))
    assert done.stdout == run(build, "schedule", "--algo", "twoshot", *"--coll all_reduce --ranks 2".split()).stdout, done
    other = re.sub(r'(gpu id|send|recv)="(\d)"', lambda found: f'{found[1]}="{"0213"[int(found[2])]}"',
                   msccl.ring_all_reduce(4, n_channels=4))  # the ring 0, 2, 1, 3
    done = run(build, "gyre", "import", write(folder, "other.xml", other))
    assert "routes of gyre's" not in done.stderr and "fold and coarsen" in done.stderr, done.stderr
    assert " chunks 4 lanes 1 " in done.stdout, done.stdout
    for name, text in (("other", done.stdout), ("halving", run(build, "gyre", "import", write(
            folder, "halving.xml", msccl.halving_doubling_all_reduce(4))).stdout)):
        assert all(int(depth) <= 4 for depth in re.findall(r" depth (\d+)", text)), text  # as communicators have
        done = run(build, "allreduce", "-g", "4", "--device", "host", "-b", "4K", "-e", "4K", "--algo-file",
                   write(folder, f"{name}.gyre", text))
        assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout
    parts = run(build, "gyre", "import", write(folder, "parts.xml", msccl.ring_all_gather(3, n_parts=40))).stdout
    assert parts.count("program") == 3, parts
    done = run(build, "gyre", "import", write(folder, "pairs.xml", msccl.all_pairs_all_reduce(4)))
    assert re.search(r"chunk 0: in 0 \+ from 1 \+ from 2 \+ from 3 -> out 0, to 1, to 2, to 3 final", done.stdout), done
    assert run(build, "gyre", "import", "--as-written", path).stdout.count("chunk ") > ring.count("chunk ")
    text = msccl.ring_all_reduce(4)
    for wrong, words in ((text.replace('type="rrs"', 'type="xyz"', 1), r', line \d+: step: type "xyz"'),
                         (text.replace('<gpu id="3"', '<gpu id="2"'), r", line \d+: gpu: id 2"),
                         (text.replace('ngpus="4"', 'ngpus="5"'), "gpu 4 is missing"),
                         (text.replace('type="s"', 'type="r"', 1), r", line \d+: ")):
        done = run(build, "gyre", "import", write(folder, "wrong.xml", wrong), status=1)
        assert re.search(f"wrong.xml{words}" if words.startswith(",") else words, done.stderr), (words, done.stderr)


def ring_flows(n):
    """An all-gather along a ring, as TE-CCL writes it; the numbers of its GPUs leave out a switch."""
    name = [rank + (rank >= 2) for rank in range(n)]
    return [f"Chunk 0 from {name[(rank - epoch) % n]} traveled over {name[rank]}->{name[(rank + 1) % n]} in epoch {epoch}"
            + (" via switches 2" if rank == 0 else "") for epoch in range(n - 1) for rank in range(n)]


def case_teccl(build, _source, folder):
    done = run(build, "gyre", "import", write(folder, "ring.json", {"7-Flows": ring_flows(4)}))
    ring = run(build, "schedule", "--algo", "ring", "--coll", "all_gather", "--ranks", "4").stdout
    assert shape_of(done.stdout) == shape_of(ring), done.stdout
    for flows, words in ((ring_flows(4)[:-1], "rank 0 never gets chunk 0 of rank 1"),
                         (ring_flows(4)[::-1][:4] + ring_flows(4)[8:], "has not received it before"),
                         (ring_flows(4) + ring_flows(4)[-1:], "line 15: rank 0 gets chunk 0 of rank 1 a second time"),
                         ([flow.replace(" in", " with volume 0.25 in") for flow in ring_flows(4)], "moves 0.25 of a chunk"),
                         (ring_flows(4) + ["Chunk"], 'line 15: is no transfer: "Chunk"')):
        done = run(build, "gyre", "import", write(folder, "wrong.json", {"7-Flows": flows}), status=1)
        assert words in done.stderr, (words, done.stderr)


def forest(n, n_chunks):
    """ForestColl's XML: of each root chains of all ranks, one a chunk, to the left and to the right."""
    lines = ['<?xml version="1.0" ?>', f'<Algo nchunkspernode="{n_chunks}">']
    for root, index in ((root, index) for root in range(n) for index in range(n_chunks)):
        way = [f"(0, 'GPU', {(root + (-1) ** index * hop) % n})" for hop in range(n)]
        lines += [f'<tree root="{way[0]}" index="{index}" nchunks="1" height="{n - 1}">',
                  *(f'<send src="{a}" dst="{b}" path="{a},{b}"/>' for a, b in zip(way, way[1:])), "</tree>"]
    return "\n".join([*lines, "</Algo>"])


def case_trees(build, _source, folder):
    """Every link of a tree carries a chunk once each way; programs run; trees that are none are refused with their line."""
    text = forest(12, 2)
    path = write(folder, "forest.xml", text)
    for coll, n_ways in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        found = run(build, "gyre", "import", path, "--coll", coll, "--as-written").stdout
        assert len(re.findall(r"\bto \d+", found)) == n_ways * 2 * 12 * 11 and found.count("program") == 2 * 12, coll
    star = re.sub(r"""src="[^"]*" dst="(.*)" path""", r"""src="(0, 'GPU', 0)" dst="\1" path""", forest(12, 1))
    stars = write(folder, "star.xml", "".join(re.findall(r"(?s)<\?.*?</tree>\n", star)[:1]) +
                  re.sub(r"(?s).*?</tree>", "", forest(12, 1), count=1))
    assert " -> scratch 0" in run(build, "gyre", "import", stars, "--coll", "all_reduce", "--as-written").stdout
    done = run(build, "allreduce", "-g", "4", "--device", "host", "-b", "4K", "-e", "4K", "--algo-file", write(
        folder, "forest.gyre", run(build, "gyre", "import", write(folder, "four.xml", forest(4, 2)), "--coll",
                                   "all_reduce").stdout))
    assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout
    four = forest(4, 1)
    for wrong, words in ((four.replace("GPU', 2)\" path", "GPU', 1)\" path", 1), r", line 5: send: \(0, 'GPU', 1\) has the"),
                         (re.sub(r"<send.*\n", "", four, count=1), r", line 3: tree of root \(0, 'GPU', 0\) does not reach"),
                         (four.replace('nchunks="1"', 'nchunks="2"', 1), "line 2: the trees of root .* have 2 chunks"),
                         (four.replace("dst=\"(0, 'GPU', 1", "dst=\"(0, 'GPU', 9", 1), "line 4: send: dst=.* root of no tree"),
                         (forest(4, 17), "each root has 17 chunks")):
        done = run(build, "gyre", "import", write(folder, "wrong.xml", wrong), status=1)
        assert re.search(words, done.stderr), (words, done.stderr)


def packet_plan(n=2):
    """An all-reduce of MSCCL++ by packets: every rank adds one chunk and sends the sum to all others."""
    gpus = []
    for rank in range(n):
        peers = [peer for peer in range(n) if peer != rank]
        remote = [{"rank": peer, "type": "s", "access_channel_types": ["memory"]} for peer in peers]
        # scratch: n chunks for contributions, n for sums
        ops = [{"name": "ppkt", "src_buff": [{"type": "i", "index": peer, "size": 1}], "channel_type": "memory",
                "dst_buff": [{"buffer_id": at, "index": rank, "size": 1}]} for at, peer in enumerate(peers)]
        ops.append({"name": "respkt", "channel_type": "memory", "reduce_op": "sum",
                    "src_buff": [{"type": "i", "index": rank, "size": 1},
                                 *({"type": "s", "index": peer, "size": 1} for peer in peers)],
                    "dst_buff": [{"type": "o", "index": rank, "size": 1},
                                 *({"buffer_id": at, "index": n + rank, "size": 1} for at in range(len(peers)))]})
        ops += [{"name": "upkt", "src_buff": [{"type": "s", "index": n + peer, "size": 1}],
                 "dst_buff": [{"type": "o", "index": peer, "size": 1}]} for peer in peers]
        gpus.append({"id": rank, "input_chunks": n, "output_chunks": n, "scratch_chunks": 2 * n, "threadblocks": [
            {"id": 0, "ops": ops, "channels": [{"channel_type": "memory", "channel_ids": list(range(n - 1))}],
             "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": list(range(n - 1))}]}],
            "channels": [{"channel_type": "memory", "connected_to": peers}], "remote_buffers": remote, "semaphores": []})
    return {"name": "packets", "collective": "allreduce", "protocol": "LL", "inplace": True, "gpus": gpus}


def put_plan():
    """The same of two ranks by puts, signals and waits."""
    plan = packet_plan()
    for rank, gpu in enumerate(plan["gpus"]):
        signal, wait = ({"name": name, "channel_ids": [0], "channel_type": "memory"} for name in ("signal", "wait"))
        put, both, unpack = gpu["threadblocks"][0]["ops"]
        both["src_buff"].sort(key=lambda buffer: buffer["type"])
        gpu["threadblocks"][0]["ops"] = [dict(put, name="put"), signal, wait,
                                         dict(both, name="re", dst_buff=both["dst_buff"][:1]),
                                         {"name": "put", "src_buff": both["dst_buff"][:1], "channel_type": "memory",
                                          "dst_buff": both["dst_buff"][1:]}, signal, wait, dict(unpack, name="copy")]
    return plan


def case_mscclpp(build, _source, folder):
    for plan in (packet_plan(2), packet_plan(4), put_plan()):
        n = len(plan["gpus"])
        text = run(build, "gyre", "import", write(folder, "plan.json", plan)).stdout
        terms = ["in 0", *(f"from {peer}" for peer in range(1, n))]
        assert f"chunk 0: {' + '.join(terms)} -> out 0, {', '.join(f'to {peer}' for peer in range(1, n))} final" in text, text
        assert text.count("chunk ") == n * (2 * n - 1), text

    def changed(path, value, plan=None):
        """The refusal of a plan in which one value differs."""
        plan = plan or packet_plan()
        at = plan
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return run(build, "gyre", "import", write(folder, "wrong.json", plan), status=1).stderr
    ops = ["gpus", 0, "threadblocks", 0, "ops"]
    for name in ("get", "rre", "rres", "glres", "gstore", "pipeline"):
        assert re.search(rf"wrong.json, line \d+: {name}: ", changed([*ops, 1, "name"], name)), name
    assert re.search(r", line \d+: jump: there is no such operation", changed([*ops, 1, "name"], "jump"))
    assert re.search(r", line \d+: respkt: gpu 0, thread block 0: it never runs", changed([*ops[:1], 1, *ops[2:]], [])), "cycle"
    assert "gpu 1 is missing" in changed(["gpus", 1, "id"], 2)
    assert "is read before it is written" in changed([*ops, 0, "src_buff", 0, "index"], 7)
    assert "different numbers of chunks" in changed([*ops, 0, "dst_buff", 0, "size"], 2)
    assert "counts a contribution twice" in changed([*ops, 1, "src_buff", 1], {"type": "i", "index": 0, "size": 1})


def case_goal(build, _source, folder):
    """Sends and receives of a pair match, nothing waits for itself, and the bytes are those of the formula."""
    n, n_bytes, path = 4, 1 << 20, os.path.join(folder, "ring.goal")
    run(build, "gyre", "export", "goal", "--output", path, "--bytes", "1M", "--algo", "ring", "--coll", "all_reduce",
        "--ranks", str(n))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.startswith(f"num_ranks {n}\n"), text
    sent, received = [], []
    for rank, body in enumerate(re.findall(r"rank \d+ \{(.*?)\}", text, re.S)):
        sent += [(rank, int(peer), int(size)) for size, peer in re.findall(r"send (\d+)b to (\d+)", body)]
        received += [(int(peer), rank, int(size)) for size, peer in re.findall(r"recv (\d+)b from (\d+)", body)]
        assert all(int(before) < int(after) for after, before in re.findall(r"l(\d+) requires l(\d+)", body)), body
    assert sorted(sent) == sorted(received) and len(sent) == 2 * n * (n - 1), sent
    assert sum(size for rank, _, size in sent if rank == 0) == 2 * (n - 1) * n_bytes // n, sent


def fields(data):
    """(field, value) pairs of a message of protocol buffers."""
    at, found = 0, []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7f) << shift
            shift += 7
            at += 1
            if not data[at - 1] & 0x80:
                return value
    while at < len(data):
        key = number()
        if key & 7 == 0:
            found.append((key >> 3, number()))
        else:
            assert key & 7 == 2, key
            size = number()
            found.append((key >> 3, data[at:at + size]))
            at += size
    return found


def case_chakra(build, _source, folder):
    """Every record is whole; nodes depend on earlier ones; sends and receives of all ranks match."""
    n, sent, received = 3, [], []
    run(build, "gyre", "export", "chakra", "--output", os.path.join(folder, "t"), "--bytes", "3M", "--algo", "twoshot",
        "--coll", "all_reduce", "--ranks", str(n))
    for rank in range(n):
        with open(os.path.join(folder, f"t.{rank}.et"), "rb") as file:
            data = file.read()
        records = []
        while data:
            size = shift = at = 0
            while True:
                size |= (data[at] & 0x7f) << shift
                shift, at = shift + 7, at + 1
                if not data[at - 1] & 0x80:
                    break
            records.append(fields(data[at:at + size]))
            data = data[at + size:]
        assert records[0][0][0] == 1 and isinstance(records[0][0][1], bytes), records[0]
        for number, record in enumerate(records[1:], 1):
            node = dict((key, value) for key, value in record if key != 10)
            attributes = {}
            for key, value in record:
                if key == 10:
                    (_, name), (field, number_of) = fields(value)
                    attributes[name.decode()] = number_of
                    assert field == (27 if name == b"is_cpu_op" else 9), (name, field)
            assert node[1] == number and all(dep < number for dep in node.get(5, b"")), node
            if node[3] in (5, 6):
                assert attributes["comm_size"] == 1 << 20, attributes
                (sent if node[3] == 5 else received).append((attributes["comm_src"], attributes["comm_dst"]))
    assert sorted(sent) == sorted(received) and len(sent) == 2 * n * (n - 1), sent


if __name__ == "__main__":
    case, build_folder, source_folder = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        globals()[f"case_{case}"](build_folder, source_folder, temporary)
