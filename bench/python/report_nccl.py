# SPDX-License-Identifier: Apache-2.0
"""Tables of nccl-tests, as text (with NCCL's log between the lines, or without) or as the JSON of -J, in the
form of a bench's report. gyre's own benches print the same text."""
import re

# The programs of nccl-tests -> the collective, and bytes over a link / size among n ranks.
COLLECTIVES = {"all_reduce": ("all_reduce", lambda n: 2 * (n - 1) / n),
               "all_gather": ("all_gather", lambda n: (n - 1) / n),
               "reduce_scatter": ("reduce_scatter", lambda n: (n - 1) / n),
               "alltoall": ("all_to_all", lambda n: (n - 1) / n), "broadcast": ("broadcast", lambda n: 1),
               "reduce": ("reduce", lambda n: 1), "gather": ("gather", lambda n: (n - 1) / n),
               "scatter": ("scatter", lambda n: (n - 1) / n), "sendrecv": ("send_recv", lambda n: 1)}
RANK_LINE = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
VIA = re.compile(r"\bvia ((?:P2P|SHM|NET)(?:/[\w-]+)*)")
SHOWN_VARIABLES = ("NCCL_", "GYRE_", "CUDA_VISIBLE")
SECRET = re.compile(r"TOKEN|KEY|PASS|SECRET", re.I)


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None   # N/A, or "nan"


def transports_of(log):
    """NET/IB/GDRDMA, ... : what the lines "via" name, without numbers of devices."""
    return ", ".join(sorted({re.sub(r"/\d+(?=/|$)", "", found) for found in VIA.findall(log)}))


def collective_of(words, factor, n_ranks, has_op):
    """(collective, bytes over a link / size) by the program's name or, where it is not said, by busbw / algbw."""
    named = [name for name in re.findall(r"(\w+)_perf", words) if name in COLLECTIVES]
    if named:
        name, factor_of = COLLECTIVES[named[0]]
        return name, factor_of(n_ranks)
    for name in ("all_reduce", "reduce_scatter") if has_op and n_ranks > 1 else ():
        if abs(COLLECTIVES[name][1](n_ranks) - factor) < 0.03 * factor:
            return name, COLLECTIVES[name][1](n_ranks)
    return "unknown", factor


def as_report(rows, places, words, settings, environment, log=""):
    """rows: (bytes, count, type, op, out of place, in place), each half (us, algbw, busbw, wrong) or None."""
    largest = max((row for row in rows if row[4]), key=lambda row: row[0], default=None)
    n_ranks = settings["ranks"] = len(places) or None
    factor = largest[4][2] / largest[4][1] if largest and largest[4][1] else 1.0
    name, factor = collective_of(words, factor, n_ranks or 0, bool(rows) and rows[0][3] != "none")
    results = []
    for n_bytes, count, kind, _, *halves in rows:
        row = {"bytes": n_bytes, "count": count, "type": kind, "transports": transports_of(log)}
        for key, half in zip(("out_of_place", "in_place"), halves):
            if half and half[0]:
                # The bandwidths are printed with two decimals, of small calls 0.00.
                algbw = n_bytes / (half[0] * 1e3)
                row[key] = {"time_us": half[0], "algbw_gbytes_per_s": algbw, "busbw_gbytes_per_s": algbw * factor,
                            "wrong": half[3]}
        row.setdefault("out_of_place", row.get("in_place"))   # replays of traces are in place only
        results.append(row)
    return {"schema_version": 1, "collective": name, "settings": {**settings, "reference": ""},
            "environment": environment, "places": places, "results": results}


def from_text(text):
    """None = there is no table in it."""
    columns = re.search(r"^#\s+(size\s+count\s+type\s+.*time\s+algbw\s+busbw.*)$", text, re.M)
    if not columns:
        return None
    names = columns.group(1).split()
    times = [at for at, name in enumerate(names) if name == "time"]
    op = names.index("redop") if "redop" in names else None
    rows = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) < times[0] + 3 or not re.fullmatch(r"\s*\d+\s+\d+\s+[a-z]\w*\s.*", line):
            continue
        halves = [tuple(number(cell) for cell in (cells[at:at + 4] + [None])[:4]) for at in times if at + 3 <= len(cells)]
        rows.append((int(cells[0]), int(cells[1]), cells[2], cells[op] if op else "none", halves[0],
                     halves[1] if len(halves) > 1 else None))
    places = [{"rank": int(rank), "host": host, "words": words} for rank, host, words in RANK_LINE.findall(text)]
    settings = {key: int(found.group(1)) for key, found in (
        ("warmup_iterations", re.search(r"warmup iters: (\d+)", text)),
        ("iterations", re.search(r"(?<!warmup )(?<!agg )\biters: (\d+)", text))) if found}
    starting = re.search(r"Collective test starting: (\S+)", text)
    words = starting.group(1) if starting else " ".join(re.findall(r"\w+_perf", text)[:1])
    return as_report(rows, places, words, settings, {}, text)


def from_json(value):
    """None = not the JSON of nccl-tests."""
    config, results = value.get("config"), value.get("results")
    if not isinstance(config, dict) or not isinstance(results, list) or "nccl_version" not in value:
        return None

    def half(row, key):
        times = row.get(key) or {}
        return (number(times.get("time", times.get("cpu_time"))), number(times.get("alg_bw")),
                number(times.get("bus_bw")), number(times.get("nwrong"))) if times else None
    rows = [(row.get("size"), row.get("count"), row.get("type"), row.get("redop"), half(row, "out_of_place"),
             half(row, "in_place")) for row in results if isinstance(row, dict) and isinstance(row.get("size"), int)]
    devices = next((found for found in (config.get("devices"), value.get("devices")) if isinstance(found, list)), [])
    places = [{"rank": place.get("rank"), "host": place.get("hostname"), "words": place.get("device_info", "")}
              for place in devices if isinstance(place, dict)]
    pairs = [line.partition("=") for line in value.get("env") or [] if isinstance(line, str)]
    environment = {name: text for name, _, text in pairs
                   if name.startswith(SHOWN_VARIABLES) and not SECRET.search(name)}
    settings = {ours: config[theirs] for ours, theirs in (("iterations", "iterations"),
                ("warmup_iterations", "warmup_iters")) if theirs in config}
    args = value.get("args") or [""]
    return as_report(rows, places, str(args[0]), settings, environment)
