# SPDX-License-Identifier: Apache-2.0
"""The blocks of a report's sections, and words that several sections use. A block is ("text", words),
("list", [words]), ("table", header, rows), ("code", words) or ("chart", title, svg).
"""

NOT_MEASURED = "not measured"


def text(words):
    return ("text", words)


def table(header, rows):
    return ("table", header, rows)


def nothing(words):
    return [text(words)]


def first_of_each_id(checks):
    return list({check["id"]: check for check in reversed(checks)}.values())[::-1]


def name_of(check):
    """Words like "rdma.mtu rxe0:1 on ranks 0-1 (warn)"."""
    ranks = str(check.get("ranks") or "")
    where = f" on rank{'' if ranks.isdigit() else 's'} {ranks}" if ranks else ""
    return " ".join(f"{check['id']} {check['subject']}".split()) + f"{where} ({check['severity']})"


def first_line(words):
    return words.split("\n", 1)[0]
