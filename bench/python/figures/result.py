# SPDX-License-Identifier: Apache-2.0
"""What a figure returns."""
from dataclasses import dataclass, field


@dataclass
class Result:
    """@cannot: why the claim cannot be tested here; then nothing else is set. @curves: label -> [(x, y)]."""
    showed: bool = False
    found: str = ""
    columns: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    curves: dict = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    cannot: str = ""
