#!/usr/bin/env python3
"""The tables of docs/performance.md, from the JSON that tests/gpu/compare wrote.

    tests/gpu/table.py FOLDER
"""
import json
import pathlib
import sys

ORDER = ["allreduce", "allgather", "reducescatter", "broadcast", "reduce"]


def size_text(n_bytes):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 1 << shift:
            return f"{n_bytes >> shift} {unit}"
    return f"{n_bytes} B"


def row(result):
    compared = result["comparison"]
    in_place = result.get("comparison_in_place", {})
    # Reports from before --nccl-mode have no mode: plain buffers.
    mode = " window" if compared.get("reference_mode") == "window" else ""
    busbw = result["out_of_place"]["busbw_gbytes_per_s"]
    scale = result["out_of_place"]["time_us"] / compared["gyre_us"]
    return (f"| {size_text(result['bytes'])} | {result['algorithm']} {result['protocol']}"
            f" x{result['blocks']} | {compared['gyre_us']:.2f} | {compared['reference_us']:.2f}{mode} |"
            f" {compared['ratio']:.2f} ({compared['ratio_low']:.2f}-{compared['ratio_high']:.2f}) |"
            f" {in_place.get('ratio', float('nan')):.2f} | {busbw * scale:.1f} |")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    files = sorted(pathlib.Path(sys.argv[1]).glob("*-[0-9]*.json"),
                   key=lambda f: (ORDER.index(f.stem.split("-")[0]), f.stem))
    for file in files:
        report = json.loads(file.read_text())
        name, n_ranks = file.stem.split("-")
        print(f"\n### {name}, {n_ranks} GPUs\n")
        print("| size | gyre's choice (blocks) | gyre us | NCCL us | ratio (interval) |"
              " in place | busbw GB/s |")
        print("|---|---|---|---|---|---|---|")
        for result in report["results"]:
            if "comparison" in result:
                print(row(result))


if __name__ == "__main__":
    main()
