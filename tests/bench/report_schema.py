"""The schema of reports, and a validator for the part of JSON Schema that it uses."""

import os
import subprocess
import tempfile

from running import bench, clean_environment, read_json, run


def check_schema(value, schema, where="report"):
    """The part of JSON Schema that bench/report/report.schema.json uses."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
             "number": (int, float), "integer": int}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fits = any(isinstance(value, kinds[t]) and (t == "boolean" or not isinstance(value, bool)) for t in types)
    assert fits, f"{where}: {value!r} is not {types}"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            assert name in value, f"{where}: no {name}"
        for name, item in value.items():
            if name in known:
                check_schema(item, known[name], f"{where}.{name}")
            else:
                extra = schema.get("additionalProperties", False)
                assert extra, f"{where}: unknown {name}"
                check_schema(item, extra, f"{where}.{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            check_schema(item, schema["items"], f"{where}[{i}]")


def schema_of_reports(source):
    return read_json(os.path.join(source, "bench", "report", "report.schema.json"))


def has_json(directory):
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run([bench(directory, "allreduce"), "-g", "2", "--device", "host", "-b",
                               "8", "-e", "8", "-J", os.path.join(work, "r.json")],
                              capture_output=True, text=True, env=clean_environment())
    return "built without json-c" not in done.stderr
