#!/usr/bin/env python3
"""Runs one case of the tests of `draw`.

    python3 tests/draw/draw.py CASE BENCH_DIR      (CASE: the name of a case_* function, without "case_")
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support"))
from files import read_text, write_text
from replay import embedded_values, replay, wanted

SKIPPED = 77
SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES_OF_A_PAGE = 1 << 20  # of 64 ranks

SHAPES = [
    ("ring", "all_reduce", ["--ranks", "4"]),
    ("ring", "all_reduce", ["--ranks", "1"]),
    ("ring", "all_reduce", ["--ranks", "5", "--placed"]),
    ("ring", "reduce_scatter", ["--ranks", "6"]),
    ("ring", "all_gather", ["--hosts", "2x3", "--variant", "1"]),
    ("ring", "broadcast", ["--ranks", "5", "--root", "3"]),
    ("tree", "all_reduce", ["--ranks", "8"]),
    ("tree", "all_reduce", ["--hosts", "3+2+4"]),
    ("tree", "reduce", ["--ranks", "7", "--root", "2"]),
    ("direct", "all_reduce", ["--ranks", "12"]),
    ("direct", "all_to_all", ["--ranks", "9"]),
    ("direct", "gather", ["--ranks", "5", "--root", "4"]),
    ("direct", "scatter", ["--ranks", "11", "--root", "1"]),
    ("twoshot", "all_reduce", ["--ranks", "6", "--placed"]),
    ("twoshot", "reduce", ["--ranks", "10"]),
    ("spread", "all_reduce", ["--ranks", "5", "--placed"]),
    ("sendrecv", "send_recv", ["--ranks", "2", "--root", "1"]),
    ("two_level_ring", "all_reduce", ["--hosts", "2x4"]),
    ("two_level_tree", "broadcast", ["--hosts", "4x3", "--root", "5"]),
    ("two_level_log", "all_reduce", ["--hosts", "5x2"]),
    ("two_level_ring", "reduce_scatter", ["--hosts", "3x2"]),
    ("halving", "all_reduce", ["--ranks", "6"]),
    ("swing:4x2", "all_reduce", ["--ranks", "8", "--variant", "1"]),
    ("bruck", "all_to_all", ["--ranks", "5"]),
]
LARGE = [("ring", "all_reduce", ["--ranks", "64"]), ("twoshot", "all_reduce", ["--ranks", "64"]),
         ("direct", "all_to_all", ["--ranks", "64"]), ("tree", "all_reduce", ["--ranks", "64"]),
         ("two_level_log", "all_reduce", ["--hosts", "8x8"])]


def run(command, status=0, given=None, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, input=given,
                          env={**os.environ, **(environment or {})})
    assert status is None or done.returncode == status, f"{command} ended with {done.returncode}\n{done.stderr}"
    return done


def options_of(shape):
    algorithm, collective, options = shape
    return ["--algo", algorithm, "--coll", collective] + options


def draw(directory, options, kind, given=None):
    return run([os.path.join(directory, "draw")] + options + [f"--{kind}", "-"], given=given)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="drawing">(.*?)</script>', page, re.S).group(1))


def programs_of(directory, shape):
    return run([os.path.join(directory, "schedule")] + options_of(shape)).stdout


def check_drawing(drawing, shape):
    """The rounds replay, every step's value is what the replay computes, and the outputs are what
    the collective demands."""
    outputs, results = replay(drawing)
    values = embedded_values(drawing)
    n_values = 0
    for rank, program in enumerate(drawing["programs"]):
        for worker, lists in enumerate(program["workers"]):
            assert min(lists["rounds"]) >= 0, (shape, rank, worker)
            for index, number in enumerate(lists["values"]):
                n_values += 1
                assert values[number] == results[rank, worker, index], (shape, rank, worker, index)
    assert n_values == len(results)
    goal = wanted(drawing["collective"], drawing["ranks"], drawing["root"], drawing["parts"])
    assert outputs == goal, shape
    shown = {}
    for rank, chunks in enumerate(drawing["goal"]):
        for chunk, (source_chunk, source) in enumerate(chunks):
            sources = range(drawing["ranks"]) if source < 0 else [source]
            shown[rank, chunk] = tuple((i, source_chunk) for i in sources)
    assert shown == goal, shape
    assert drawing["finding"] is None and not drawing["stuck"], shape


def check_times(drawing, shape):
    """Every step starts after the slots that it reads have arrived, and the last one ends at the
    predicted time. A step runs once for each tile."""
    times = drawing["times"]
    assert times["tiles"] >= 1, shape
    lines = {(rank, worker, index): text
             for rank, program in enumerate(drawing["programs"])
             for worker, lists in enumerate(program["workers"])
             for index, text in enumerate(lists["text"])}
    assert len(times["steps"]) == len(lines) * times["tiles"], shape
    arrivals, last = {}, 0
    for rank, worker, index, tile, start, end, *arrived in times["steps"]:
        outs = lines[rank, worker, index].split("->")[1]
        peers = re.findall(r"(?:to|into) (\d+)(?:/(\d+))?", outs)
        assert len(peers) == len(arrived), shape
        for (peer, lane), when in zip(peers, arrived):
            assert when >= start, shape
            arrivals.setdefault((rank, int(peer), int(lane or 0)), []).append((tile, index, when))
        last = max(last, end)
        assert end >= start
    for slots in arrivals.values():
        slots.sort()
    taken = dict.fromkeys(arrivals, 0)
    for rank, worker, index, tile, start, *_ in sorted(
            times["steps"], key=lambda step: (step[0], step[1], step[3], step[2])):
        ins = lines[rank, worker, index].split("->")[0]
        for peer, lane in re.findall(r"(?:from|placed) (\d+)(?:/(\d+))?", ins):
            fifo = int(peer), rank, int(lane or 0)
            assert start >= arrivals[fifo][taken[fifo]][2] - 1, (shape, fifo)  # both are rounded
            taken[fifo] += 1
    assert taken == {fifo: len(slots) for fifo, slots in arrivals.items()}, shape
    # other variants may end later, so for several hosts this is a bound
    assert last <= times["time_ns"] and (any(drawing["hosts"]) or last == times["time_ns"]), shape


def case_pages(directory):
    """For every shape of the list, the page's data replays to what the collective demands."""
    for shape in SHAPES:
        page = draw(directory, options_of(shape), "html").stdout
        drawing = data_of(page)
        check_drawing(drawing, shape)
        if drawing["times"] is not None:
            check_times(drawing, shape)
        assert not re.search(r"(src|href)=", page) and "http" not in page, "the page needs a network"
    drawing = data_of(draw(directory, options_of(SHAPES[6]) + ["--bytes", "8M"], "html").stdout)
    assert drawing["times"]["tiles"] > 1
    check_times(drawing, "tree with several tiles")


def case_large(directory):
    """A page of 64 ranks has at most a megabyte, and its data replays, too."""
    for shape in LARGE:
        page = draw(directory, options_of(shape), "html").stdout
        assert len(page.encode()) <= MOST_BYTES_OF_A_PAGE, (shape, len(page))
        check_drawing(data_of(page), shape)
    done = run([os.path.join(directory, "draw"), "--algo", "ring", "--coll", "all_reduce", "--ranks",
                "512", "--svg", "-"], status=1)
    assert "too many to draw" in done.stderr, done.stderr


def case_same_data(directory):
    """--json is the page's data, and --file draws what the algorithm draws."""
    shape = SHAPES[6]
    page = data_of(draw(directory, options_of(shape), "html").stdout)
    assert json.loads(draw(directory, options_of(shape), "json").stdout) == page
    text = programs_of(directory, shape)
    from_file = json.loads(draw(directory, ["--file", "-"], "json", given=text).stdout)
    assert from_file == page and from_file["times"]["measured"] is False
    text = programs_of(directory, SHAPES[17])
    hosts = SHAPES[17][2]
    from_file = json.loads(draw(directory, ["--file", "-"] + hosts, "json", given=text).stdout)
    assert from_file["hosts"] == [0] * 4 + [1] * 4, from_file["hosts"]
    two = text + programs_of(directory, SHAPES[0])
    done = run([os.path.join(directory, "draw"), "--file", "-", "--svg", "-"], status=1, given=two)
    assert "2 shapes" in done.stderr, done.stderr


def case_measured(directory):
    """The times of a traced run are shown, for the programs that it ran and for no others."""
    with tempfile.TemporaryDirectory() as place:
        trace = os.path.join(place, "trace.json")
        run([os.path.join(directory, "allreduce"), "-g", "4", "-b", "1M", "-e", "1M", "-n", "2", "-w",
             "0", "--device", "host", "--algo", "tree"], environment={"GYRE_TRACE_FILE": trace})
        shape = ["--algo", "tree", "--coll", "all_reduce", "--ranks", "4"]
        text = run([os.path.join(directory, "schedule")] + shape).stdout
        done = run([os.path.join(directory, "draw")] + shape + ["--from-trace", trace, "--json", "-"], status=None)
        if "built without json-c" in done.stderr:
            print("the tools were built without json-c")
            sys.exit(77)
        for options, given in [(shape, None), (["--file", "-"], text)]:
            page = draw(directory, options + ["--from-trace", trace], "html", given=given).stdout
            drawing = data_of(page)
            assert drawing["times"]["measured"] is True and drawing["times"]["bytes"] == 1 << 20
            check_drawing(drawing, "traced")
            drawing["hosts"][0] = 1  # another call's end is not this one's: a bound
            check_times(drawing, "traced")
        done = run([os.path.join(directory, "draw"), "--algo", "ring", "--coll", "all_reduce",
                    "--ranks", "4", "--from-trace", trace, "--json", "-"], status=1)
        assert re.search("no call that ran exactly these programs on all ranks; call [0-9]+ ran tree "
                         "all_reduce", done.stderr), done.stderr
        done = run([os.path.join(directory, "draw")] + shape + ["--from-trace", trace, "--call",
                    "999", "--json", "-"], status=1)
        assert trace + " has no steps of a call 999" in done.stderr, done.stderr


def parse_svg(text):
    root = xml.etree.ElementTree.fromstring(text)
    defined = {symbol.get("id") for symbol in root.iter(SVG + "symbol")}
    used = {use.get("href")[1:] for use in root.iter(SVG + "use")}
    assert used <= defined and defined - used <= {"e1"}, used ^ defined  # e1: no rank has an output
    assert root.find(SVG + "title").text, "no title for people who cannot see the picture"
    return root


def count_framed(root):
    """The outputs that are shown as complete."""
    return sum(box.get("class") == "d" for box in root.iter(SVG + "rect"))


def case_svg(directory):
    """The SVG is well-formed, uses each value that it defines, and shows every round once."""
    for shape in SHAPES + [LARGE[0], LARGE[4]]:
        root = parse_svg(draw(directory, options_of(shape), "svg").stdout)
        assert root.find(SVG + "title").text.startswith(f"{shape[0].split(':')[0]} {shape[1]}"), shape
    root = parse_svg(draw(directory, options_of(SHAPES[0]), "svg").stdout)
    captions = [text.text for text in root.iter(SVG + "text") if text.get("font-size") == "13"]
    assert captions == ["start"] + [f"round {i}" for i in range(7)], captions
    long = parse_svg(draw(directory, ["--algo", "ring", "--coll", "all_reduce", "--ranks", "16"], "svg").stdout)
    texts = [text.text or "" for text in long.iter(SVG + "text")]
    n_left_out = sum(int(text.split()[0]) for text in texts if text.endswith("before it left out"))
    assert n_left_out + sum(text.startswith("round ") for text in texts) == 2 * 15 + 1, "every round is shown or counted"
    arrows = [path for path in root.iter(SVG + "path") if path.get("class") == "a"]
    assert len(arrows) == 4 * 6, "a ring of 4 ranks sends 6 slots each"
    assert count_framed(root) == 4 * (1 + 2 + 3 + 4), "from round 3 on a rank completes a chunk a round"
    for shape in (SHAPES[2], SHAPES[8], SHAPES[13], SHAPES[18]):
        drawing = json.loads(draw(directory, options_of(shape), "json").stdout)
        last = ["--round", str(drawing["rounds"] - 1)]
        root = parse_svg(draw(directory, options_of(shape) + last, "svg").stdout)
        assert count_framed(root) == sum(len(chunks) for chunks in drawing["goal"]), shape
    root = parse_svg(draw(directory, options_of(SHAPES[0]) + ["--round", "2"], "svg").stdout)
    captions = [text.text for text in root.iter(SVG + "text") if text.get("font-size") == "13"]
    assert captions == ["round 2"], captions
    # A few small rounds are narrow, so that a page of 400 pixels can show them: with letters that grow there.
    for shape in (("ring", "all_reduce", ["--ranks", "3"]), ("doubling", "all_reduce", ["--ranks", "4"])):
        root = parse_svg(draw(directory, options_of(shape), "svg").stdout)
        assert float(root.get("width")) < 600 and "max-width:480px" in root.find(SVG + "style").text, (shape, root.attrib)


def places_of(directory, options, given=None):
    drawing = json.loads(draw(directory, options, "json", given=given).stdout)
    return None if drawing["places"] is None else [tuple(place) for place in drawing["places"]]


def case_places(directory):
    """Lines, trees and tori are drawn as such, by page and SVG; rings and all pairs are not."""
    course = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs/course")
    line = ["--file", os.path.join(course, "line.gyre")]
    assert places_of(directory, line) == [(rank, 0) for rank in range(4)]
    # From the root on, eight ranks a row, and back below them.
    chain = places_of(directory, ["--algo", "ring", "--coll", "broadcast", "--ranks", "10", "--root", "3"])
    assert chain == [((i, 0) if i < 8 else (15 - i, 1)) for i in ((rank - 3) % 10 for rank in range(10))], chain
    heap = places_of(directory, ["--file", os.path.join(course, "solutions/2_heap.gyre")])
    for rank in range(1, 7):
        assert heap[rank][1] == heap[(rank - 1) // 2][1] + 1, (rank, heap)
    for rank in range(3):
        assert heap[rank][0] == (heap[2 * rank + 1][0] + heap[2 * rank + 2][0]) / 2, (rank, heap)
    assert sorted(heap[3:]) == [(x, 2) for x in range(4)], heap
    # Of a double tree the first one: the parents that the programs name for chunk 0.
    text = programs_of(directory, SHAPES[6])
    double = places_of(directory, options_of(SHAPES[6]))
    up = re.findall(r"ranks 8 rank (\d+) .*\nworker 0\n  chunk 0: .*-> to (\d+)\n", text)
    assert len(up) == 7 and all(double[int(child)][1] == double[int(parent)][1] + 1 for child, parent in up), (up, double)
    for algorithm, ranks, columns in (("bucket:4x3", 12, 3), ("bucket:4x4", 16, 4)):
        torus = places_of(directory, ["--algo", algorithm, "--coll", "all_reduce", "--ranks", str(ranks)])
        assert torus == [(rank % columns, rank // columns) for rank in range(ranks)], (algorithm, torus)
    # Layers stand behind each other, so that no two ranks share a place.
    for algorithm, layers, rows, columns in (("bucket:2x3x4", 2, 3, 4), ("bucket:3x3x3", 3, 3, 3), ("doubling", 2, 2, 2)):
        cube = places_of(directory, ["--algo", algorithm, "--coll", "all_reduce", "--ranks", str(layers * rows * columns)])
        assert cube == [(column * layers + layer, row * layers + layer) for layer in range(layers) for row in range(rows)
                        for column in range(columns)], (algorithm, cube)
    for shape in (SHAPES[0], SHAPES[13], SHAPES[17], ("twoshot", "all_reduce", ["--ranks", "3"])):
        assert places_of(directory, options_of(shape)) is None, shape
    # The SVG's boxes stand in the same order and at the same distances.
    for options in (line, ["--file", os.path.join(course, "solutions/2_heap.gyre")]):
        places = places_of(directory, options)
        root = parse_svg(draw(directory, options + ["--round", "0"], "svg").stdout)
        boxes = [(float(box.get("x")), float(box.get("y"))) for box in root.iter(SVG + "rect") if box.get("class") == "f"]
        assert len(boxes) == len(places), options
        for axis in (0, 1):
            steps = {round((box[axis] - boxes[0][axis]) / (place[axis] - places[0][axis]))
                     for box, place in zip(boxes, places) if place[axis] != places[0][axis]}
            assert len(steps) <= 1 and all(step > 0 for step in steps), (options, axis, boxes)


def case_fabric(directory):
    """A fabric's picture has a box for each host and switch, a line for each bundle of links, and all lie within it."""
    examples = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs/examples")
    # name, hosts, switches, lines, slow, dead: of a torus each of two directions of a host; NICs to one leaf are a line
    for name, *expected in (("rails", 8, 12, 8 * 8 + 8 * 4, 0, 0), ("hurt", 8, 12, 8 * 8 + 8 * 4, 1, 2),
                            ("racks", 8, 6, 8 + 4 * 2, 0, 0), ("torus", 64, 0, 64 * 2, 0, 0),
                            ("dragonfly", 64, 4, 64 + 4 * 3 // 2, 0, 0)):
        root = xml.etree.ElementTree.fromstring(
            draw(directory, ["--fabric", os.path.join(examples, f"{name}.fabric")], "svg").stdout)
        boxes = [box.get("class") for box in root.iter(SVG + "rect")]
        lines = [line.get("class").split() for line in root.iter(SVG + "path")]
        assert [boxes.count("b"), boxes.count("s"), len(lines), sum("slow" in line for line in lines),
                sum("dead" in line for line in lines)] == expected, (name, boxes, lines)
        dark = root.find(SVG + "style").text.split("prefers-color-scheme:dark")[1]
        assert dark.index(".l{") < dark.index(".slow{") < dark.index(".dead{"), "the later rule of a line counts"
        width, height = (float(word) for word in root.get("viewBox").split()[2:])
        for box in root.iter(SVG + "rect"):
            x, y = float(box.get("x", 0)), float(box.get("y", 0))
            assert 0 <= x <= x + float(box.get("width")) <= width, (name, box.attrib)
            assert 0 <= y <= y + float(box.get("height")) <= height, (name, box.attrib)
    with tempfile.NamedTemporaryFile("w", suffix=".fabric") as slow:  # a line is as slow as its slowest NIC
        slow.write(read_text(os.path.join(examples, "racks.fabric")) + "link host 3 nic 5 rate 12.5\n")
        slow.flush()
        assert "8 links of 12.5 GB/s" in draw(directory, ["--fabric", slow.name], "svg").stdout
    alps = draw(directory, ["--fabric", "alps", "--hosts", "336x4"], "svg").stdout  # three groups of 112
    assert alps.count('class="b"') == 336 and alps.count('class="s"') == 3, alps[:500]
    for words in (["--fabric", "alps"], ["--fabric", "alps", "--svg", "-", "--algo", "ring"],
                  ["--fabric", os.path.join(examples, "torus.fabric"), "--hosts", "4x4", "--svg", "-"]):
        assert "--fabric needs --svg" in run([os.path.join(directory, "draw"), *words], status=2).stderr, words
    assert "too many to draw" in run([os.path.join(directory, "draw"), "--fabric", "alps", "--hosts", "2048x4", "--svg",
                                      "-"], status=1).stderr


def case_pictures(directory):
    """The pictures of the pages are those that draw makes today, and small."""
    pictures = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs/pictures")
    wrong = change(programs_of(directory, SHAPES[0]), *MISTAKES[0][1:4])
    made = {"ring.svg": options_of(SHAPES[0]), "double_tree.svg": options_of(SHAPES[6]),
            "twoshot.svg": ["--algo", "twoshot", "--coll", "all_reduce", "--ranks", "4"],
            "two_level.svg": ["--algo", "two_level_log", "--coll", "all_reduce", "--hosts", "2x3"],
            "wrong.svg": ["--file", "-"]}
    made["hurt.svg"] = ["--fabric", os.path.join(pictures, "../examples/hurt.fabric")]
    assert sorted(os.listdir(pictures)) == sorted([*made, "published.svg", "call.svg"])  # of gyre validate and gyre plot
    for name, options in made.items():
        assert read_text(os.path.join(pictures, name)) == draw(directory, options, "svg", given=wrong).stdout, name
        assert os.path.getsize(os.path.join(pictures, name)) < 60000, name


# How programs are made wrong: the shape, the text that is replaced, the new text, the number of its
# occurrence, and where and what the verifier finds.
MISTAKES = [
    (SHAPES[0], "from 1 + in 3", "from 1", 0, (3, 0, 3), "3 ranks of 4"),
    (SHAPES[0], " final", "", 0, (0, 0, 3), "is not final"),
    (SHAPES[0], "chunk 3: from 3 ->", "chunk 3: from 3 + in 3 ->", 0, (0, 0, 4), "counts a contribution twice"),
    (SHAPES[6], "-> out 0\n", "->\n", 0, None, ""),
    (SHAPES[0], "-> out 1\n", "-> scratch 0\n", 0, (0, -1, -1), "never written"),
    (SHAPES[0], "depth 2", "depth 1", None, (0, 0, 1), "depth 1 is enough"),
]


def change(text, old, new, which):
    if which is None:
        return text.replace(old, new)
    at = -1
    for _ in range(which + 1):
        at = text.index(old, at + 1)
    return text[:at] + new + text[at + len(old):]


def case_wrong(directory):
    """Wrong programs are drawn, with the verifier's finding at its rank, worker and step."""
    n_drawn = 0
    for shape, old, new, which, place, words in MISTAKES:
        text = change(programs_of(directory, shape), old, new, which)
        if place is None:  # the structure is refused while the text is read
            done = run([os.path.join(directory, "draw"), "--file", "-", "--html", "-"], status=1, given=text)
            assert re.match(r"draw: -: (line \d+|lines \d+ to \d+): ", done.stderr), done.stderr
            continue
        done = draw(directory, ["--file", "-"], "json", given=text)
        finding = json.loads(done.stdout)["finding"]
        assert (finding["rank"], finding["worker"], finding["step"]) == place, (new, finding)
        assert words in finding["text"] and words in done.stderr, (words, finding)
        assert (finding["chunk"] >= 0) == (words == "never written"), finding
        root = parse_svg(draw(directory, ["--file", "-"], "svg", given=text).stdout)
        marked = [box for box in root.iter(SVG + "rect") if box.get("class") == "w"]
        shown = " ".join(text.text or "" for text in root.iter(SVG + "text"))
        assert marked and "wrong: " in shown, new
        if n_drawn == 0:
            last = draw(directory, ["--file", "-", "--round", "6"], "svg", given=text).stdout
            assert count_framed(parse_svg(last)) == 12, "chunk 3 is not complete on any rank"
        n_drawn += 1
    assert n_drawn == len(MISTAKES) - 1
    drawing = json.loads(draw(directory, ["--file", "-"], "json", given=text).stdout)
    assert drawing["stuck"], "a ring without a second slot stands still"
    never = [lists["rounds"].count(-1) for program in drawing["programs"] for lists in program["workers"]]
    assert never == [6] * 4, "each rank sends once, and then none of its other 6 steps can run"


def case_options(directory):
    """Wrong options are refused with what is wrong, and a file that cannot be written is an error."""
    ring = options_of(SHAPES[0])
    for options, words in [
            (ring, "nothing to write"), (["--html", "-"], "--algo is missing"),
            (ring + ["--html"], "requires an argument"),
            (["--algo", "rng", "--coll", "all_reduce", "--ranks", "4", "--svg", "-"], '"rng" is none of ring tree'),
            (ring + ["--round", "2", "--html", "-"], "--round needs --svg"),
            (ring + ["--round", "7", "--svg", "-"], "there are 7 rounds"),
            (ring + ["--round", "x", "--svg", "-"], "expected a number"),
            (ring + ["--pdf", "-"], "unrecognized option"),
            (ring + ["--bytes", "1M", "--svg", "-"], "which show times"),
            (ring + ["--bytes", "0", "--html", "-"], "expected a size"),
            (ring + ["--bytes", "64G", "--tile", "4096", "--html", "-"], "fewer --bytes"),
            (ring + ["--cost", "/nonexistent", "--html", "-"], "/nonexistent"),
            (ring + ["--variant", "3", "--html", "-"], "variant 3 of 1"),
            (ring + ["--file", "-", "--html", "-"], "do not go with --file"),
            (ring + ["--call", "1", "--html", "-"], "--call needs --from-trace"),
            (ring + ["--from-trace", "t", "--bytes", "1M", "--html", "-"], "predicted times"),
            (["--file", "/nonexistent", "--html", "-"], "/nonexistent"),
            (ring + ["--hosts", "3x3", "--svg", "-"], "HOSTSxRANKS"),
            (ring + ["--html", "/nonexistent/x"], "No such file"),
            (ring + ["--html", "-", "more"], "unexpected argument"),
            (["--algo", "swing", "--coll", "all_gather", "--ranks", "4", "--html", "-"],
             "names its blocks"),
            (["--algo", "halving", "--coll", "all_reduce", "--ranks", "4", "--html", "-", "--bytes", "1M"],
             "chunk by chunk"),
            (["--algo", "ring", "--coll", "all_reduce", "--svg", "-", "--hosts",
              ",".join(["0"] * 20000)], "HOSTSxRANKS"),
            (["--algo", "ring", "--coll", "all_reduce", "--ranks", "1025", "--svg", "-"],
             "1025 ranks are too many to draw (at most 1024)"),
            (ring + ["--frames", "-"], "unrecognized option")]:
        done = subprocess.run([os.path.join(directory, "draw")] + options, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode in (1, 2) and words in done.stderr, (options, done.stderr)
    one_of_two = programs_of(directory, SHAPES[16]).split("end\n")[0] + "end\n"
    done = run([os.path.join(directory, "draw"), "--file", "-", "--html", "-"], status=1, given=one_of_two)
    assert "program 0 of 1 is of rank 0 of 2" in done.stderr, done.stderr
    many = one_of_two.replace("ranks 2 ", "ranks 1025 ")
    done = run([os.path.join(directory, "draw"), "--file", "-", "--html", "-"], status=1, given=many)
    assert "1025 ranks are too many to draw (at most 1024)" in done.stderr, done.stderr
    usage = run([os.path.join(directory, "draw"), "--help"]).stdout
    assert "--html FILE" in usage and "two_level_log" in usage
    if os.path.exists("/dev/full"):
        done = run([os.path.join(directory, "draw")] + ring + ["--html", "/dev/full"], status=1)
        assert "/dev/full" in done.stderr, done.stderr


# Presses the page's buttons until its end, opens the table, and leaves what it shows in the title.
PRESS = """
<script>
'use strict';
window.onerror = (message) => { document.title = 'error: ' + message; };
const press = (id) => document.getElementById(id).click();
const read = () => document.getElementById('moment').textContent +
    document.getElementById('progress').textContent + document.getElementById('words').textContent;
const seen = [];
let isSameBack = true;
if (VIEW)
    press(VIEW);
while (!document.getElementById('forward').disabled && seen.length < 100000) {
    seen.push(read());
    press('forward');
}
const presses = seen.length;
while (!document.getElementById('back').disabled && seen.length > 0) {
    press('back');
    const before = seen.pop();
    isSameBack = isSameBack && read() === before;
}
press('last');
document.getElementById('text-state').open = true;
document.getElementById('text-state').dispatchEvent(new Event('toggle'));
const rows = [...document.querySelectorAll('#text-table tr')].slice(1)
    .map((row) => [...row.cells].map((cell) => cell.textContent));
document.title = JSON.stringify({presses, isSameBack, rows, verdict: document.getElementById('verdict').textContent,
    progress: document.getElementById('progress').textContent,
    words: document.getElementById('words').textContent});
</script>
"""


def browse(browser, page, view, place):
    path = os.path.join(place, "page.html")
    write_text(path, page.replace("</body>", PRESS.replace("VIEW", json.dumps(view)) + "</body>"))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={place}/profile", "--dump-dom", f"file://{path}"],
        capture_output=True, text=True, timeout=90)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title and title.group(1).startswith("{"), (title and title.group(1), done.stderr[-500:])
    return json.loads(title.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def numbers(text):
    """The ranks of "0, 1, 5 to 7"."""
    found = []
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


def case_browser(directory):
    """In a browser, the page steps forward to its end, in rounds and in time, and then shows what the
    collective demands; a wrong program shows its finding."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("no chromium here (apt-get install chromium)")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as place:
        for shape, view in [(SHAPES[0], None), (SHAPES[13], "view-times"), (SHAPES[17], None), (SHAPES[10], None)]:
            page = draw(directory, options_of(shape), "html").stdout
            drawing = data_of(page)
            shown = browse(browser, page, view, place)
            goal = wanted(drawing["collective"], drawing["ranks"], drawing["root"], drawing["parts"])
            table = {(int(rank), int(chunk)): numbers(ranks)
                     for rank, chunk, ranks, complete in shown["rows"] if complete == "yes"}
            assert table == {key: [rank for rank, _ in value] for key, value in goal.items()}, shape
            assert shown["isSameBack"], (shape, "stepping back shows something else")
            assert view is not None or shown["presses"] == drawing["rounds"], (shape, shown["presses"])
            assert f"{len(goal)} of {len(goal)} output chunks" in shown["progress"], shown
            assert "Proved" in shown["verdict"], shown
        text = change(programs_of(directory, SHAPES[0]), "from 1 + in 3", "from 1", 0)
        shown = browse(browser, draw(directory, ["--file", "-"], "html", given=text).stdout, None, place)
        assert "rank 3, worker 0, step 3" in shown["verdict"], shown
        assert "12 of 16 output chunks" in shown["progress"], shown
        text = programs_of(directory, SHAPES[0]).replace("depth 2", "depth 1")
        shown = browse(browser, draw(directory, ["--file", "-"], "html", given=text).stdout, None, place)
        assert "Rank 2 waits for a free slot to rank 3" in shown["words"], shown


def main():
    name, directory = sys.argv[1:]
    globals()["case_" + name](directory)
    print(f"{name}: ok")


if __name__ == "__main__":
    main()
