# SPDX-License-Identifier: Apache-2.0
"""Writes the Markdown and the HTML page. A page appears whole or not at all."""
import datetime
import os

import jinja2

from report_model import make_sections
from report_sources import write_whole

TEMPLATES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "templates")


def cell(words):
    """Text of a Markdown table's cell."""
    return str(words).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def write_pages(sources, options):
    """Returns the paths of the pages. OSError if one cannot be written."""
    page = {"title": options.title, "sections": make_sections(sources, options),
            "written": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True,
                                     autoescape=lambda name: name is not None and ".html" in name)
    environment.filters["cell"] = cell
    paths = []
    for kind in ("md", "html"):
        path = f"{options.output}.{kind}"
        write_whole(path, environment.get_template(f"report.{kind}.j2").render(page))
        paths.append(path)
    return paths
