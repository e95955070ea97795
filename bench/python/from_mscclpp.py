# SPDX-License-Identifier: Apache-2.0
"""Translates an execution plan of MSCCL++ (JSON) into the text of gyre's programs. Its operations are one-sided: a
put writes the memory of another rank, and a later signal and wait, or the flags of a packet, say that it has come.
The plan is run once. A put becomes `to`, and the wait that covers it, or the first read of a packet, `from`.
Operations that read another rank's memory or use a switch have no counterpart in gyre, and are refused by name."""
import json
import json.decoder
import json.scanner
from bisect import bisect

from msccl_file import COLLECTIVES, IN_BLOCKS, MAX_CHUNKS, MAX_FILE_BYTES, MAX_GPUS, MAX_VARIANTS, REDUCES
from program_text import Programs, Refused, Step

DEPTH = 8
REMOTE = "reads the memory of another rank, which no operand of gyre does"
SWITCH = "works in the switch, which gyre's programs do not describe"
REFUSED = {"get": REMOTE, "rre": REMOTE, "rres": REMOTE, "glres": SWITCH, "gstore": SWITCH, "gstorepkt": SWITCH,
           "pipeline": "repeats steps over a number of units that only the call knows"}
# By name: local operations. (reads packets, writes locally, sends, sends packets)
MOVES = {"copy": (0, 1, 0, 0), "upkt": (1, 1, 0, 0), "cpkt": (0, 1, 0, 0), "re": (0, 1, 0, 0), "res": (0, 1, 1, 0),
         "put": (0, 0, 1, 0), "pws": (0, 0, 1, 0), "pwsf": (0, 0, 1, 0), "ppkt": (0, 0, 1, 1), "rppkt": (1, 0, 1, 1),
         "repkt": (1, 1, 0, 0), "recpkt": (1, 1, 0, 0), "respkt": (1, 1, 1, 1), "recspkt": (1, 1, 1, 1)}
SIGNALS, WAITS = ("signal", "rlxsignal", "pws", "pwsf"), ("wait", "rlxwait")


class Node(dict):
    """An object of the JSON, and its line."""
    line = 0


class LineDecoder(json.JSONDecoder):
    """Reads JSON whose objects know their lines."""

    def __init__(self):
        super().__init__()
        self.parse_object = self.object_at
        self.scan_once = json.scanner.py_make_scanner(self)
        self.line_ends = None

    def object_at(self, s_and_end, *arguments):
        text, start = s_and_end
        if self.line_ends is None:
            self.line_ends = [i for i, c in enumerate(text) if c == "\n"]
        value, end = json.decoder.JSONObject(s_and_end, *arguments)
        node = Node(value)
        node.line = bisect(self.line_ends, start) + 1
        return node, end


def refuse(node, text):
    raise Refused(f"line {getattr(node, 'line', 0)}: {text}")


def get(node, key, kind):
    value = node.get(key)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        refuse(node, f'"{key}" is missing or is no {kind.__name__}')
    return value


class Plan:
    """A plan while it runs. Cells are (rank, buffer, index); a value is (chunk, part, bits of ranks)."""

    def __init__(self, path):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_FILE_BYTES)
        try:
            top = LineDecoder().decode(text)
        except json.JSONDecodeError as error:
            raise Refused(f"line {error.lineno}: is not JSON: {error.msg}") from None
        except (ValueError, RecursionError) as error:
            raise Refused(f"is not JSON: {error}") from None
        if not isinstance(top, Node):
            raise Refused("is no plan: its outermost value is no object")
        self.coll = COLLECTIVES.get(get(top, "collective", str).lower())
        if self.coll is None or self.coll == "all_to_all":
            refuse(top, f'collective "{top["collective"]}" is none that is translated')
        self.in_place = get(top, "inplace", bool)
        self.gpus = get(top, "gpus", list)
        if not 2 <= len(self.gpus) <= MAX_GPUS:
            refuse(top, f"has {len(self.gpus)} gpus; 2 to {MAX_GPUS} are translated")
        for rank, gpu in enumerate(self.gpus):
            if not isinstance(gpu, Node) or get(gpu, "id", int) != rank:
                refuse(gpu, f"gpu {rank} is missing or out of order")
        n = len(self.gpus)
        whole = {key: max(get(gpu, f"{key}_chunks", int) for gpu in self.gpus) for key in ("input", "output")}
        self.is_vector = self.coll not in IN_BLOCKS
        in_blocks = IN_BLOCKS.get(self.coll, (False, False))
        self.n_chunks = whole["output"] if in_blocks[1] else whole["input"] or whole["output"]
        self.n_parts = 1 if self.is_vector else self.n_chunks // n
        if not 0 < self.n_chunks <= MAX_CHUNKS or (not self.is_vector and
                                                   (self.n_chunks % n or self.n_parts > MAX_VARIANTS)):
            refuse(top, f"{self.n_chunks} chunks for {n} ranks: expected 1 to {MAX_VARIANTS} for each block")
        self.cells, self.result, self.worker_of, self.unions = {}, {}, {}, {}
        for rank in range(n):
            self.fill(rank, in_blocks)

    def fill(self, rank, in_blocks):
        n_in = self.n_chunks if self.is_vector or in_blocks[0] else self.n_parts
        n_out = self.n_chunks if self.is_vector or in_blocks[1] else self.n_parts
        for i in range(n_in):
            block = i // self.n_parts if in_blocks[0] or self.is_vector else rank
            self.cells[self.cell(rank, "i", i)] = ((block, i % self.n_parts, 1 << rank), f"in {i // self.n_parts}")
        for i in range(n_out):
            self.result[self.cell(rank, "o", i)] = (i // self.n_parts, i % self.n_parts)

    def cell(self, rank, buffer, index):
        """In place, input and output are one memory: the longer of the two."""
        if self.in_place and buffer in "io":
            in_blocks = IN_BLOCKS.get(self.coll, (False, False))
            is_short = not self.is_vector and not in_blocks["io".index(buffer)]
            return rank, "m", index + (rank * self.n_parts if is_short else 0)
        return rank, buffer, index

    # ---- workers: thread blocks that share a cell or a connection's end ----

    def root(self, block):
        while self.unions.get(block, block) != block:
            block = self.unions[block]
        return block

    def touch(self, cell, block):
        other = self.root(self.worker_of.setdefault(cell, block))
        self.unions[max(other, self.root(block))] = min(other, self.root(block))


class Run:
    """One run of the plan, from whose steps the text is made. The first run finds the workers, the second one uses
    them."""

    def __init__(self, plan):
        self.plan = plan
        self.cells = dict(plan.cells)
        self.lines = {}     # (part, rank, worker) -> steps
        self.fifos = {}     # (sender, its worker, receiver, its worker) -> messages in flight
        self.places = {}    # cell that a packet is on its way to -> its message
        self.channels = {}  # (sender, receiver, number) -> signals, each a list of messages
        self.unsent = {}    # the same key -> messages since the last signal
        self.n_scratch = {}
        self.barriers = {}

    def peer_of(self, gpu, block, op, at):
        """(peer, number of the connection) of a channel id of an operation."""
        kind = op.get("channel_type", "memory")
        ids = next((entry["channel_ids"] for entry in block.get("channels", ()) if entry["channel_type"] == kind), [])
        if not 0 <= at < len(ids):
            refuse(op, f"{op['name']}: channel {at} is none of the thread block's {len(ids)}")
        entry = next((entry for entry in gpu["channels"] if entry["channel_type"] == kind), None)
        if entry is None or "connected_to" not in entry or not 0 <= ids[at] < len(entry["connected_to"]):
            refuse(op, f"{op['name']}: channel {ids[at]} connects to no rank")
        peers = entry["connected_to"]
        return peers[ids[at]], peers[:ids[at]].count(peers[ids[at]])

    def places_of(self, gpu, block, op, key):
        """(rank, buffer, index) of each buffer of an operation; all have the same number of chunks."""
        found = []
        for buffer in op.get(key, ()):
            rank, kind = gpu["id"], buffer.get("type")
            if "buffer_id" in buffer:
                refs = [number for entry in block.get("remote_buffer_refs", ()) for number in entry["remote_buffer_ids"]]
                if not 0 <= buffer["buffer_id"] < len(refs) or refs[buffer["buffer_id"]] >= len(gpu["remote_buffers"]):
                    refuse(op, f"{op['name']}: remote buffer {buffer['buffer_id']} is none of the thread block's")
                remote = gpu["remote_buffers"][refs[buffer["buffer_id"]]]
                rank, kind = remote["rank"], remote["type"]
            if kind not in ("i", "o", "s") or not 0 <= rank < len(self.plan.gpus):
                refuse(op, f"{op['name']}: buffer {kind} of rank {rank} is none that a plan has")
            found.append([(rank, kind, buffer["index"] + i) for i in range(buffer.get("size", 1))])
        return found

    def emit(self, value, rank, worker, inputs, outputs, flags=""):
        steps = self.lines.setdefault((value[1], rank, worker), [])
        steps.append(Step(str(value[0]), inputs, outputs, flags))

    def write(self, op, cell, value, worker):
        """The operand that holds the value from now on."""
        due = self.plan.result.get(cell)
        if due is not None and (due[1] != value[1] or (self.plan.is_vector and due[0] != value[0])):
            refuse(op, f"puts chunk {value[0]}, part {value[1]} into the place of chunk {due[0]}, part {due[1]}")
        number = self.n_scratch.setdefault((cell[0], value[1]), {})
        ref = f"out {due[0]}" if due is not None else f"scratch {number.setdefault(cell, len(number))}"
        self.cells[cell] = (value, ref)
        self.plan.touch(cell, (cell[0], worker))
        return ref

    def send(self, op, rank, worker, target, place, taken, refs):
        """A put of a value to another rank. Returns its message, and adds the output to `refs`."""
        message = {"cell": place, "value": taken, "from": (rank, worker), "to": target, "line": refs}
        self.fifos.setdefault((rank, worker, target), []).append(message)
        refs.append(("to", rank, worker, target, message))
        return message

    def receive(self, op, message, worker):
        """Takes a message, and all before it on its connection, into the memory of its receiver."""
        fifo = self.fifos[(*message["from"], message["to"])]
        while not message.get("done"):
            first = next((one for one in fifo if one.setdefault("by", worker) == worker), message)
            fifo.remove(first)
            first["by"], first["done"] = worker, True
            self.plan.touch(first["cell"], (first["to"], worker))
            ref = self.write(op, first["cell"], first["value"], worker)
            self.emit(first["value"], first["to"], worker, [("from", *first["from"], first["to"], first)], [ref])
            self.places.pop(first["cell"], None)

    def read(self, op, cell, worker, is_packet):
        if is_packet and cell in self.places:
            self.receive(op, self.places[cell], worker)
        if cell not in self.cells:
            if is_packet:
                return None
            refuse(op, f"{op['name']}: chunk {cell[2]} of buffer {cell[1]} of gpu {cell[0]} is read before it is written")
        self.plan.touch(cell, (cell[0], worker))
        return self.cells[cell]

    def carry_out(self, gpu, block, op, worker):
        """Whether the operation could be carried out now."""
        name, rank = op["name"], gpu["id"]
        ids = op.get("channel_ids", [])
        if name in WAITS:
            keys = [(peer, rank, number) for peer, number in (self.peer_of(gpu, block, op, i) for i in ids)]
            if not all(self.channels.get(key) for key in keys):
                return False
            for key in keys:
                for message in self.channels[key].pop(0):
                    if not message.get("done"):
                        self.receive(op, message, worker)
            return True
        if name in MOVES and not self.move(gpu, block, op, worker):
            return False
        if name in SIGNALS:
            for i in ids:
                peer, number = self.peer_of(gpu, block, op, i)
                sent = self.unsent.pop((rank, worker, peer), [])
                self.channels.setdefault((rank, peer, number), []).append(sent)
        return True

    def move(self, gpu, block, op, worker):
        reads_packets, writes, sends, sends_packets = MOVES[op["name"]]
        rank = gpu["id"]
        sources, targets = (self.places_of(gpu, block, op, key) for key in ("src_buff", "dst_buff"))
        if any(place[0] != rank for places in sources for place in places):
            refuse(op, f"{op['name']}: {REMOTE}")
        n = len(sources[0]) if sources else 0
        if n == 0 or any(len(places) != n for places in sources + targets):
            refuse(op, f"{op['name']}: its buffers have different numbers of chunks")
        local = [places for places in targets if places[0][0] == rank]
        remote = [places for places in targets if places[0][0] != rank]
        if len(local) < (writes and not sends) or bool(remote) != bool(sends):
            refuse(op, f"{op['name']}: {len(local)} local and {len(remote)} remote targets")
        cells = [[self.plan.cell(*places[i]) for places in sources] for i in range(n)]
        if reads_packets and any(cell not in self.cells and cell not in self.places for each in cells for cell in each):
            return False
        for i in range(n):
            taken = [self.read(op, cell, worker, reads_packets) for cell in cells[i]]
            value, refs, is_final = self.reduce(op, taken)
            while len(refs) > 2:  # a step has two local inputs; the pass that fuses joins them again
                numbers = self.n_scratch.setdefault((rank, value[1]), {})
                area = f"scratch {numbers.setdefault(len(numbers), len(numbers))}"
                self.emit(value, rank, worker, refs[:2], [area])
                refs = [area, *refs[2:]]
            outputs, *copies = [[self.write(op, self.plan.cell(*places[i]), value, worker)] for places in local] or [[]]
            for places in remote:
                target = places[i][0]
                message = self.send(op, rank, worker, target, self.plan.cell(*places[i]), value, outputs)
                if sends_packets:
                    self.places[message["cell"]] = message
                else:
                    self.unsent.setdefault((rank, worker, target), []).append(message)
            if outputs != refs:  # else a chunk in its place: nothing to do
                self.emit(value, rank, worker, refs, outputs, " final" if is_final else "")
            for copied in copies:  # a step has one local output
                self.emit(value, rank, worker, outputs[:1], copied)
        return True

    def reduce(self, op, taken):
        """The value of a sum, its operands with the lowest rank first, and whether it is final."""
        taken = sorted(taken, key=lambda one: one[0][2] & -one[0][2])
        value, ranks = taken[0][0], 0
        for other, _ in taken:
            if other[:2] != value[:2]:
                refuse(op, f"{op['name']}: adds chunk {other[0]}, part {other[1]} to chunk {value[0]}, part {value[1]}")
            if ranks & other[2]:
                refuse(op, f"{op['name']}: counts a contribution twice")
            ranks |= other[2]
        if len(taken) > 1 and self.plan.coll not in REDUCES:
            refuse(op, f"{op['name']}: adds, which {self.plan.coll} does not")
        is_final = len(taken) > 1 and ranks == (1 << len(self.plan.gpus)) - 1
        return (*value[:2], ranks), [ref for _, ref in taken], is_final

    def run(self):
        """Carries out all operations in an order that works. Refused names the first one that never can."""
        plan = self.plan
        blocks = [(gpu, block, list(get(block, "ops", list))) for gpu in plan.gpus for block in get(gpu, "threadblocks", list)]
        for gpu, block, ops in blocks:
            for op in ops:
                name = get(op, "name", str)
                if name in REFUSED:
                    refuse(op, f"{name}: {REFUSED[name]}")
                if name not in MOVES and name not in (*SIGNALS, *WAITS, "nop", "flush", "barrier", "sem_acquire",
                                                      "sem_release"):
                    refuse(op, f"{name}: there is no such operation")
        positions = [0] * len(blocks)
        semaphores = {}
        is_moving = True
        while is_moving:
            is_moving = False
            for i, (gpu, block, ops) in enumerate(blocks):
                while positions[i] < len(ops):
                    op = ops[positions[i]]
                    own = (gpu["id"], get(block, "id", int))
                    if op.get("tbg_info", {}).get("tb_id", 0) > 0:
                        pass  # thread blocks of a group share one operation, which the first one stands for
                    elif op["name"] == "barrier":
                        key = (gpu["id"], op["barrier_id"])
                        come = self.barriers.setdefault(key, {})
                        come.setdefault(own, positions[i])
                        if len(come) < op["num_threadblocks"]:
                            break
                        self.barriers[key] = {} if len(come) == op["num_threadblocks"] else come
                        for j, (_, other, _) in enumerate(blocks):
                            if (blocks[j][0]["id"], other["id"]) in come and j != i:
                                positions[j] += 1
                    elif op["name"].startswith("sem_"):
                        for number in op.get("semaphore_ids", ()):
                            key = (gpu["id"], number)
                            semaphores.setdefault(key, gpu["semaphores"][number]["init_value"])
                        delta = 1 if op["name"] == "sem_release" else -1
                        keys = [(gpu["id"], number) for number in op.get("semaphore_ids", ())]
                        if delta < 0 and any(semaphores[key] < 1 for key in keys):
                            break
                        for key in keys:
                            semaphores[key] += delta
                    elif not self.carry_out(gpu, block, op, plan.root(own)[1]):
                        break
                    positions[i] += 1
                    is_moving = True
        for i, (gpu, block, ops) in enumerate(blocks):
            if positions[i] < len(ops):
                op = ops[positions[i]]
                refuse(op, f"{op['name']}: gpu {gpu['id']}, thread block {block['id']}: it never runs; what it waits for "
                           "is never sent")


def translate(path, file):
    plan = Plan(path)
    Run(plan).run()
    run = Run(plan)
    run.run()
    lanes = {}

    def text_of(ref):
        if isinstance(ref, str):
            return ref
        word, sender, worker, receiver, message = ref
        key = (worker, message.get("by"))
        known = lanes.setdefault((sender, receiver), {})
        lane = known.setdefault(key, len(known))
        return f"{word} {sender if word == 'from' else receiver}" + (f"/{lane}" if lane else "")

    for part in range(plan.n_parts):
        programs = Programs("mscclpp", plan.coll, n_chunks=plan.n_chunks if plan.is_vector else 1, depth=DEPTH)
        lanes.clear()
        for rank in range(len(plan.gpus)):
            steps = {worker: found for (of_part, of_rank, worker), found in run.lines.items()
                     if (of_part, of_rank) == (part, rank)}
            add_kept(plan, run, part, rank, steps)
            programs.ranks.append([[Step(step.chunks, list(map(text_of, step.inputs)), list(map(text_of, step.outputs)),
                                         step.flags) for step in steps[worker]] for worker in sorted(steps)])
        file.write(programs.text())


def add_kept(plan, run, part, rank, steps):
    """Copies a result that is still the input of an in-place call, which out of place nobody else copies."""
    if plan.coll in REDUCES:
        return
    for cell, (block, of_part) in plan.result.items():
        value, ref = run.cells.get(cell, (None, ""))
        if cell[0] == rank and of_part == part and ref.startswith("in "):
            worker = plan.root(plan.worker_of.get(cell, (rank, 0)))[1]  # all that read it are this worker
            steps.setdefault(worker, []).append(Step(str(value[0]), [ref], [f"out {block}"]))
