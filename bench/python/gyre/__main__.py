# SPDX-License-Identifier: Apache-2.0
"""python -m gyre ..., the same as the command gyre."""
from . import main

main()
