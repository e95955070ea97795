# SPDX-License-Identifier: Apache-2.0
"""What `gyre plot` reads: reports of benches, and the predictions of schedule, which take the form of a
bench's report. This file needs Python's own library alone."""
import csv
import io
import os
from dataclasses import dataclass

from report_sources import SourceError, check_bench, is_number, read_json, split_label

# The columns of the tidy CSV (bench/report/tidy.c), behind the file.
COLUMNS = ("file", "engine", "version", "date", "machine", "device", "fabric", "ranks", "hosts", "collective", "dtype",
           "algorithm", "protocol", "channels", "bytes", "time_us", "busbw_gbytes_per_s", "ratio", "ratio_low",
           "ratio_high")
TIMES = ("time_us", "algbw_gbytes_per_s", "busbw_gbytes_per_s")


@dataclass
class Source:
    """One file, or the predictions of one algorithm in a file."""
    path: str
    label: str
    report: dict          # of a bench, or in the form of one
    version: str
    date: str
    ranks: int
    hosts: int
    is_predicted: bool = False


def check_prediction(row, path):
    """SourceError unless the row is one of schedule's predictions."""
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("algorithm", "collective")) \
            or not all(isinstance(row.get(key), int) for key in ("ranks", "hosts", "bytes")):
        raise SourceError(f"{path}: a prediction lacks its algorithm, collective, ranks, hosts or bytes")
    if not all(is_number(row.get(key)) and row[key] >= 0 for key in TIMES):
        raise SourceError(f"{path}: the prediction of {row['algorithm']} for {row['bytes']} bytes has no times")


def predictions(report, label, path):
    """The sources of a report of schedule --predict: one for each algorithm."""
    if report.get("schema_version") != 1:
        raise SourceError(f"{path}: its schema_version is {report.get('schema_version')}, not 1")
    if not report["predictions"]:
        raise SourceError(f"{path}: has no predictions; schedule --predict --json writes them")
    groups = {}
    for row in report["predictions"]:
        check_prediction(row, path)
        groups.setdefault((row["algorithm"], row["collective"], row["ranks"], row["hosts"]), []).append(row)
    sources = []
    for (algorithm, collective, ranks, hosts), rows in groups.items():
        results = [{"type": "float", "machine": row.get("constants", ""), "fabric": row.get("fabric", ""),
                    **{key: row.get(key, "") for key in ("bytes", "algorithm", "protocol", "channels")},
                    "out_of_place": {key: row[key] for key in TIMES}} for row in rows]
        sources.append(Source(path, f"{label}: {algorithm}" if label else f"predicted {algorithm}",
                              {"collective": collective, "settings": {"ranks": ranks}, "results": results},
                              str(report.get("gyre_version", "")), str(report.get("written", "")), ranks, hosts, True))
    if label and len(sources) == 1:
        sources[0].label = label
    return sources


def bench_source(report, label, path):
    """The source of a bench's report."""
    settings = check_bench(report, path)["settings"]
    limit = settings.get("limit_gbytes_per_s")
    if limit is not None and not (is_number(limit) and limit > 0):
        raise SourceError(f"{path}: its limit_gbytes_per_s is not a number above 0")
    for row in report["results"]:
        if not is_number(row.get("predicted_us", 0)):
            raise SourceError(f"{path}: the predicted time of {row['bytes']} bytes is not a number")
    hosts = {str(place.get("host")) for place in report["places"] if isinstance(place, dict)}
    name = os.path.splitext(os.path.basename(path))[0]
    return Source(path, label or name, report, str(report.get("gyre_version", "")), str(report.get("started", "")),
                  settings.get("ranks", ""), len(hosts) or "")


def contenders(report, label, path):
    """The sources of a report of --compare-algos: one for each algorithm."""
    hosts = {str(place.get("host")) for place in report["places"] if isinstance(place, dict)}
    name = label or os.path.splitext(os.path.basename(path))[0]
    groups = {}
    for row in report["contenders"]:
        if not isinstance(row, dict) or not isinstance(row.get("algorithm"), str) \
                or not isinstance(row.get("bytes"), int) \
                or not all(is_number(row.get(key)) and row[key] >= 0 for key in TIMES):
            raise SourceError(f"{path}: an entry of its contenders lacks its algorithm, bytes or times")
        groups.setdefault(row["algorithm"], []).append(
            {**row, "out_of_place": {key: row[key] for key in TIMES}})
    return [Source(path, f"{name}: {algorithm}",
                   {**{key: report[key] for key in ("collective", "settings", "places")}, "results": results},
                   str(report.get("gyre_version", "")), str(report.get("started", "")),
                   report["settings"].get("ranks", ""), len(hosts) or "")
            for algorithm, results in groups.items()]


def is_of_contenders(value):
    """Is this the report of a bench that ran with --compare-algos?"""
    return isinstance(value.get("contenders"), list) and value["contenders"] and not value.get("results") \
        and isinstance(value.get("places"), list) and isinstance(value.get("settings"), dict) \
        and isinstance(value.get("collective"), str)


def read_sources(texts):
    """The sources of [LABEL=]FILE texts. SourceError names the file that cannot be used."""
    sources = []
    for text in texts:
        label, path = split_label(text)
        value = read_json(path)
        if isinstance(value, dict) and isinstance(value.get("predictions"), list):
            sources += predictions(value, label, path)
        elif isinstance(value, dict) and is_of_contenders(value):
            sources += contenders(value, label, path)
        elif not isinstance(value, dict) or "results" not in value:
            raise SourceError(f"{path}: is neither the report of a bench (--json) nor of schedule --predict --json")
        else:
            sources.append(bench_source(value, label, path))
    return sources


def repeated_size(source):
    """A size that has several rows, or None."""
    sizes = [row["bytes"] for row in source.report["results"]]
    return next((size for size in sizes if sizes.count(size) > 1), None)


def check_fit(sources, what):
    """SourceError unless the sources can be drawn in one chart, under labels that differ."""
    first = sources[0]
    for source in sources:
        name, other = source.report["collective"], first.report["collective"]
        if what == "time" and name != other:
            raise SourceError(f"{source.path}: is of {name}, but {first.path} is of {other}; different collectives "
                              "move different amounts of data, so their times do not belong in one chart. "
                              "--y busbw takes that into account")
        size = repeated_size(source)
        if size is not None:
            raise SourceError(f"{source.path}: has several rows of {size} bytes (cycles, types or roots); a curve "
                              "needs one for each size")
    labels = [source.label for source in sources]
    for source, label in zip(sources, labels):
        if labels.count(label) > 1:
            source.label = f"{label} ({source.path}, {source.ranks} ranks on {source.hosts} hosts)"
    if len({source.report["collective"] for source in sources}) > 1:
        for source in sources:
            source.label += f", {source.report['collective']}"


def machine_of(report):
    """The host of rank 0 of a bench's report; "" if it is unknown."""
    places = [place for place in report.get("places", ()) if isinstance(place, dict)]
    return next((place.get("host", "") for place in places if place.get("rank") == 0), "")


def lines_of(source, row):
    """The values of COLUMNS for each engine that a row has times of. Unknown ones are left out."""
    timing, rounds = row["out_of_place"], row.get("comparison")
    settings = source.report["settings"]
    same = {"file": source.path, "version": source.version, "date": source.date, "ranks": source.ranks,
            "hosts": source.hosts, "collective": source.report["collective"], "bytes": row["bytes"],
            "machine": row.get("machine", machine_of(source.report)),
            "device": settings.get("device", ""), "fabric": row.get("fabric", ""), "dtype": row.get("type", "")}
    own = {"engine": "predicted" if source.is_predicted else "gyre",
           **{key: row.get(key, "") for key in ("algorithm", "protocol", "channels")},
           **{key: f"{row[key]:.6g}" for key in ("ratio", "ratio_low", "ratio_high") if is_number(row.get(key))}}
    times = [(own, rounds["gyre_us"] if rounds else timing["time_us"])]
    if rounds:
        times.append(({"engine": settings.get("reference") or "reference"}, rounds["reference_us"]))
    factor = timing["busbw_gbytes_per_s"] / timing["algbw_gbytes_per_s"] if timing["algbw_gbytes_per_s"] else 0
    return [{**same, **engine, "time_us": f"{us:.6g}",
             "busbw_gbytes_per_s": f"{row['bytes'] / (us * 1e3) * factor if us > 0 else 0:.6g}"}
            for engine, us in times]


def table(sources):
    """All rows of all sources as CSV: a line for each engine and size."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for source in sources:
        for row in source.report["results"]:
            writer.writerows(lines_of(source, row))
    return text.getvalue()
