"""Published algorithms in MSCCL's XML format, written for these tests: each function returns the
text of one file. They are in place: buffer i is input and result."""


class Block:
    """A thread block (tb): its peers and steps."""

    def __init__(self, send=-1, recv=-1, channel=0):
        self.send, self.recv, self.channel, self.steps = send, recv, channel, []

    def step(self, kind, src=("i", -1), dst=("i", -1), count=1, depends=(-1, -1)):
        """Appends a step and returns its number. depends: (index of a block, number of a step)."""
        self.steps.append((kind, src, dst, count, depends))
        return len(self.steps) - 1


def write(name, coll, n_chunks, gpus, n_scratch=0, chunks=None, attributes='outofplace="0"'):
    """gpus: a list of blocks for each GPU. chunks: of input and output, if they differ."""
    n_in, n_out = chunks or (n_chunks, 0)
    lines = [f'<algo name="{name}" proto="Simple" nchannels="1" nchunksperloop="{n_chunks}" '
             f'ngpus="{len(gpus)}" coll="{coll}" inplace="1" {attributes}>']
    for number, blocks in enumerate(gpus):
        needed = {step[4] for block in blocks for step in block.steps}
        lines.append(f'  <gpu id="{number}" i_chunks="{n_in}" o_chunks="{n_out}" '
                     f's_chunks="{n_scratch}">')
        for index, block in enumerate(blocks):
            lines.append(f'    <tb id="{index}" send="{block.send}" recv="{block.recv}" '
                         f'chan="{block.channel}">')
            for at, (kind, src, dst, count, depends) in enumerate(block.steps):
                lines.append(
                    f'      <step s="{at}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1]}" '
                    f'dstbuf="{dst[0]}" dstoff="{dst[1]}" cnt="{count}" depid="{depends[0]}" '
                    f'deps="{depends[1]}" hasdep="{int((index, at) in needed)}"/>')
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join(lines + ["</algo>"]) + "\n"


def ring_all_reduce(n_gpus, n_channels=1):
    """Sums go once round the ring and results once more; every channel has chunks of its own."""
    gpus = []
    for rank in range(n_gpus):
        blocks = []
        for channel in range(n_channels):
            block = Block((rank + 1) % n_gpus, (rank - 1) % n_gpus, channel)
            for hop in range(2 * n_gpus - 1):
                at = ("i", (rank - hop) % n_gpus * n_channels + channel)
                kind = ("s" if hop == 0 else "rrs" if hop < n_gpus - 1 else
                        "rrcs" if hop == n_gpus - 1 else "rcs" if hop < 2 * n_gpus - 2 else "r")
                block.step(kind, at, at)
            blocks.append(block)
        gpus.append(blocks)
    return write("ring", "allreduce", n_gpus * n_channels, gpus)


def all_pairs_all_reduce(n_gpus, count=2):
    """Every GPU gets its `count` chunks from all others at once, adds them up in a block of its
    own, and sends the sums to all. That block waits for two steps, for one of them by a nop."""
    gpus = []
    for rank in range(n_gpus):
        peers = [peer for peer in range(n_gpus) if peer != rank]
        mine = ("i", rank * count)
        blocks = [Block(peer, peer) for peer in peers]
        adder = Block()
        for index, peer in enumerate(peers):
            area = ("s", index * count)
            blocks[index].step("s", ("i", peer * count), mine, count)
            received = blocks[index].step("r", area, area, count)
            if index == 0:
                adder.step("nop", depends=(index, received))
                last = adder.step("re", area, mine, count)
            else:
                last = adder.step("re", area, mine, count, (index, received))
        for index, peer in enumerate(peers):
            blocks[index].step("s", mine, mine, count, (len(peers), last))
            theirs = ("i", peer * count)
            blocks[index].step("r", theirs, theirs, count)
        gpus.append(blocks + [adder])
    return write("all-pairs", "allreduce", n_gpus * count, gpus, (n_gpus - 1) * count)


def halving_doubling_all_reduce(n_gpus):
    """Pairs at distance n/2, n/4, ... 1 halve what they still add up; then the ranges double again
    on the way back. n_gpus: a power of two."""
    gpus = []
    for rank in range(n_gpus):
        blocks, ranges, last = [], [], (-1, -1)
        first, size, distance = 0, n_gpus, n_gpus // 2
        while distance > 0:
            size //= 2
            keeps_upper = bool(rank & distance)
            kept, given = (first + size, first) if keeps_upper else (first, first + size)
            block = Block(rank ^ distance, rank ^ distance)
            block.step("s", ("i", given), ("i", given), size, last)
            last = (len(blocks), block.step("rrc", ("i", kept), ("i", kept), size))
            blocks.append(block)
            ranges.append((kept, given, size))
            first, distance = kept, distance // 2
        for index in reversed(range(len(blocks))):
            kept, given, size = ranges[index]
            blocks[index].step("s", ("i", kept), ("i", kept), size, last)
            last = (index, blocks[index].step("r", ("i", given), ("i", given), size))
        gpus.append(blocks)
    return write("halving_doubling", "allreduce", n_gpus, gpus)


def doubling_all_reduce(n_gpus):
    """Pairs at distance 1, 2, 4, ... send each other all that they have and add it. Every GPU adds for
    itself, so all of them must add in the same order. n_gpus: a power of two."""
    gpus = []
    for rank in range(n_gpus):
        blocks, last, distance = [], (-1, -1), 1
        while distance < n_gpus:
            block = Block(rank ^ distance, rank ^ distance)
            block.step("s", ("i", 0), ("i", 0), depends=last)
            last = (len(blocks), block.step("rrc", ("i", 0), ("i", 0)))
            blocks.append(block)
            distance *= 2
        gpus.append(blocks)
    return write("doubling", "allreduce", 1, gpus)


def ring_reduce_scatter(n_gpus):
    """Sums go once round the ring, and end in the block of their owner."""
    gpus = []
    for rank in range(n_gpus):
        block = Block((rank + 1) % n_gpus, (rank - 1) % n_gpus)
        for hop in range(n_gpus):
            at = ("i", (rank - hop - 1) % n_gpus)
            kind = "s" if hop == 0 else "rrs" if hop < n_gpus - 1 else "rrc"
            block.step(kind, at, ("o", 0) if kind == "rrc" else at)
        gpus.append([block])
    return write("ring_scatter", "reducescatter", n_gpus, gpus, chunks=(n_gpus, 1))


def direct_all_to_all(n_gpus):
    """Each block goes straight to its receiver; the own one is copied."""
    gpus = []
    for rank in range(n_gpus):
        blocks = []
        for peer in range(n_gpus):
            block = Block() if peer == rank else Block(peer, peer)
            if peer == rank:
                block.step("cpy", ("i", rank), ("o", rank))
            else:
                block.step("s", ("i", peer), ("o", rank))
                block.step("r", ("i", rank), ("o", peer))
            blocks.append(block)
        gpus.append(blocks)
    return write("pairwise", "alltoall", n_gpus, gpus, chunks=(n_gpus, n_gpus),
                 attributes='outofplace="1"')


def chain_broadcast(n_gpus):
    """Down a line of GPUs, from buffer i of the first one to buffer o of all."""
    gpus = []
    for rank in range(n_gpus):
        block = Block(rank + 1 if rank < n_gpus - 1 else -1, rank - 1)
        block.step("s" if rank == 0 else "rcs" if rank < n_gpus - 1 else "r", ("i", 0), ("o", 0))
        copy = Block()
        if rank == 0:
            copy.step("cpy", ("i", 0), ("o", 0))
        gpus.append([block, copy])
    return write("chain", "broadcast", 1, gpus, chunks=(1, 1), attributes='outofplace="1"')


def chain_reduce(n_gpus):
    """Up a line of GPUs, to the first one."""
    gpus = []
    for rank in range(n_gpus):
        block = Block(rank - 1, rank + 1 if rank < n_gpus - 1 else -1)
        block.step("rrc" if rank == 0 else "rrs" if rank < n_gpus - 1 else "s", ("i", 0), ("i", 0))
        gpus.append([block])
    return write("chain", "reduce", 1, gpus, attributes='root="0" outofplace="0"')


def ring_all_gather(n_gpus, n_parts=1):
    """Blocks go once round the ring, each part on a channel of its own. In place the own block is there; out of
    place it is not."""
    gpus = []
    for rank in range(n_gpus):
        blocks = []
        for part in range(n_parts):
            block = Block((rank + 1) % n_gpus, (rank - 1) % n_gpus, part)
            block.step("s", ("i", part), ("o", rank * n_parts + part))
            for hop in range(1, n_gpus):
                at = ("o", (rank - hop) % n_gpus * n_parts + part)
                block.step("rcs" if hop < n_gpus - 1 else "r", at, at)
            blocks.append(block)
        gpus.append(blocks)
    return write("ring_gather", "allgather", n_gpus * n_parts, gpus, chunks=(n_parts, n_gpus * n_parts))


def direct_all_gather(n_gpus):
    """Each block goes straight to all others, from its place in the result, which nothing writes in place."""
    gpus = []
    for rank in range(n_gpus):
        blocks = []
        for peer in (peer for peer in range(n_gpus) if peer != rank):
            block = Block(peer, peer)
            block.step("s", ("o", rank), ("o", rank))
            block.step("r", ("o", peer), ("o", peer))
            blocks.append(block)
        gpus.append(blocks)
    return write("direct_gather", "allgather", n_gpus, gpus, chunks=(1, n_gpus))


def crossing_all_to_all(n_gpus):
    """As direct_all_to_all, but blocks arrive in other thread blocks than those that send from the same place."""
    gpus = []
    for rank in range(n_gpus):
        blocks = [Block()]
        blocks[0].step("cpy", ("i", rank), ("o", rank))
        for peer in (peer for peer in range(n_gpus) if peer != rank):
            sender, receiver = Block(send=peer), Block(recv=peer)
            receiver.step("r", ("i", rank), ("o", peer))
            sender.step("s", ("i", peer), ("o", rank))
            blocks += [receiver, sender]
        gpus.append(blocks)
    return write("crossing", "alltoall", n_gpus, gpus, chunks=(n_gpus, n_gpus),
                 attributes='outofplace="1"')
