# SPDX-License-Identifier: Apache-2.0
"""One call of a trace as an SVG, for `gyre plot`: from the API to the wire, and back. Needs no packages.

Each rank has a lane for its launch, for each worker and for its proxy. Ranks with an odd number are upside down, so
that the proxies of two ranks face each other. A curve is a slot's way."""
import html
import re

from report_sources import SourceError

LEFT, WIDTH, LANE, GAP, TOP = 150, 1000, 26, 10, 58
COLOURS = {"launch": "#8a8a8a", "copy": "#56b4e9", "reduce": "#e69f00", "send": "#009e73", "receive": "#cc79a7",
           "post": "#009e73", "complete": "#b8a800"}
WORDS = {"launch": "launch", "copy": "copy", "reduce": "add", "wait for data": "wait for data",
         "wait for credit": "wait for credit", "send": "send", "receive": "receive", "post": "post", "complete": "complete"}
STYLE = """<style>
text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px;fill:#1a1c20}.s{fill:#5c6370}
.b{fill:#fff}.l{fill:#f1f2f5}.w{fill:none;stroke:#9aa1ad;stroke-dasharray:3 2}.a{stroke:#1a1c20;fill:none;opacity:.7}
.t{font-size:17px;font-weight:600}.i{fill:#1a1c20}
@media(prefers-color-scheme:dark){text{fill:#eceef2}.s{fill:#a4abb8}.b{fill:#15171b}.l{fill:#1f2228}.a{stroke:#eceef2}
.w{stroke:#5a6170}.i{fill:#15171b}}
</style>"""


def is_trace(value):
    return isinstance(value, dict) and isinstance(value.get("traceEvents"), list)


def slices_of(path, value, number):
    """Of one file's ranks and a call (None = the last): {(rank, lane): slices}, {rank: end}, what it is."""
    names, ranks, slices = {}, {}, []
    for event in value["traceEvents"]:
        if event.get("ph") == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event.get("ph") == "M" and event["name"] == "gyre_rank":
            ranks[event["pid"]] = event["args"]["rank"]
        elif event.get("ph") == "X":
            slices.append(event)
    calls = {event["args"]["call"] for event in slices if names[event["pid"], event["tid"]] == "calls"}
    number = max(calls, default=None) if number is None else number
    if not ranks or number not in calls:
        raise SourceError(f"{path}: has no call {'' if number is None else number}; its calls are {sorted(calls)}")
    found, ends = {}, {}
    for pid, rank in ranks.items():
        own = [event for event in slices if event["pid"] == pid]
        whole = [event for event in own if event["args"].get("call") == number]
        begin, end = min(event["ts"] for event in whole), max(event["ts"] + event["dur"] for event in whole)
        for event in own:
            lane = names[pid, event["tid"]]
            is_proxy = lane.startswith("proxy") and begin <= event["ts"] <= end
            if event in whole and lane != "calls" or is_proxy:
                found.setdefault((rank, lane), []).append(event)
        about = next((event for event in whole if names[pid, event["tid"]] == "calls"), None)
        if about is None:
            raise SourceError(f"{path}: rank {rank} lacks call {number}")
        ends[rank] = about["ts"] + about["dur"]
    return found, ends, about["args"]


def lanes_in_order(found):
    """The lanes from top to bottom: the proxy of an even rank is its lowest lane, of an odd rank its highest."""
    def key(lane):
        rank, name = lane
        kind = 0 if name == "launch" else 2 if name.startswith("proxy") else 1
        place = [kind] + [int(word) for word in re.findall(r"\d+", name)]
        return (rank, place if rank % 2 == 0 else [-part for part in place])
    return sorted(found, key=key)


def draw_call(files, number, title):
    """files: (path, trace) pairs that together have all ranks. Returns the text of an SVG."""
    found, ends, about = {}, {}, {}
    for path, value in files:
        of_file, ends_of_file, about = slices_of(path, value, number)
        found.update(of_file)
        ends.update(ends_of_file)
    order = lanes_in_order(found)
    begin = min(event["ts"] for events in found.values() for event in events)
    span = max(ends.values()) - begin
    height = TOP + len(order) * LANE + (len({rank for rank, _ in order}) - 1) * GAP + 62

    def x(when):
        return LEFT + (when - begin) / span * WIDTH

    has_proxy = any(name.startswith("proxy") for _, name in order)
    title = title or f"{about['collective']} of {about['bytes']} B, {about.get('algorithm', '')}" + \
        (", from the API to the wire" if has_proxy else "")
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
             f'width="{LEFT + WIDTH + 20}" height="{height}" role="img">', f"<title>{html.escape(title)}</title>", STYLE,
             f'<rect class="b" width="{LEFT + WIDTH + 20}" height="{height}"/>',
             f'<text class="t" x="16" y="24">{html.escape(title)}</text>']
    step = next(unit for power in range(-1, 9) for unit in (10 ** power, 2 * 10 ** power, 5 * 10 ** power) if span / unit <= 10)
    for i in range(int(span / step) + 1):
        lines.append(f'<text class="s" x="{x(begin + i * step):.1f}" y="{TOP - 8}">{i * step:g} us</text>')
    places, y, last_rank = {}, TOP, order[0][0]
    sent, received = {}, {}
    for rank, name in order:
        y += GAP if rank != last_rank else 0
        last_rank, places[rank, name] = rank, y
        label = f"rank {rank}: {'the API' if name == 'launch' else name.replace('channel 0 ', '')}"
        lines += [f'<rect class="l" x="{LEFT}" y="{y + 2}" width="{WIDTH}" height="{LANE - 4}"/>',
                  f'<text x="12" y="{y + 17}">{label}</text>']
        if name == "launch":
            lines.append(f'<text x="{x(ends[rank]) - 4:.1f}" y="{y + 17}" text-anchor="end">done</text>'
                         f'<path class="a" d="M{x(ends[rank]):.1f} {y + 3}v{LANE - 6}"/>')
        for event in sorted(found[rank, name], key=lambda event: event["ts"]):
            at, width = x(event["ts"]), max(event["dur"] / span * WIDTH, 1.5)
            word, colour = WORDS.get(event["name"], event["name"]), COLOURS.get(event["name"])
            style = f'fill="{colour}"' if colour else 'class="w"'
            args = event["args"]
            what = args.get("text", f"{args['bytes']} B" if "bytes" in args else "")
            lines.append(f'<rect {style} x="{at:.1f}" y="{y + 4}" width="{width:.1f}" height="{LANE - 8}">'
                         f"<title>{word}, {event['dur']:.2f} us: {html.escape(what)}</title></rect>")
            if width > 6.5 * len(word) + 3:
                lines.append(f'<text class="{"i" if colour else "s"}" x="{at + 3:.1f}" y="{y + 17}">{word}</text>')
            is_step = not name.startswith("proxy")
            for slot in event["args"].get("sent", []) if is_step else []:
                sent[slot] = at + width, y + LANE / 2
            for slot in event["args"].get("received", []) if is_step else []:
                received[slot] = at, y + LANE / 2
        y += LANE
    for slot in sorted(sent.keys() & received.keys()):
        (x1, y1), (x2, y2) = sent[slot], received[slot]
        lines.append(f'<path class="a" d="M{x1:.1f} {y1:.1f}C{x1 + 12:.1f} {(y1 + y2) / 2:.1f} {x2 - 12:.1f} '
                     f'{(y1 + y2) / 2:.1f} {x2:.1f} {y2:.1f}"><title>slot {html.escape(slot)}</title></path>')
    at = 16
    for name in [name for name in COLOURS if any(event["name"] == name for events in found.values() for event in events)]:
        lines.append(f'<rect fill="{COLOURS[name]}" x="{at}" y="{y + 18}" width="9" height="9"/>'
                     f'<text x="{at + 13}" y="{y + 26}">{WORDS[name]}</text>')
        at += 75
    lines += [f'<text class="s" x="16" y="{y + 46}">Dashed: waiting. Curves: slots, from the step that sent them to the '
              f"step that read them.{' Proxies: system calls.' if has_proxy else ''}</text>", "</svg>", ""]
    return "\n".join(lines)
