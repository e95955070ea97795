# SPDX-License-Identifier: Apache-2.0
"""Whole files, as tests read and write them."""
import csv
import json


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_json(path):
    return json.loads(read_text(path))


def write_json(path, value):
    write_text(path, json.dumps(value))


def read_csv(path):
    """The rows, each by the names of the first line."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
