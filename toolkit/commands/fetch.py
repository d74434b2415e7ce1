"""`fetch`: the default model ahead of its first use."""

from __future__ import annotations

import argparse

from toolkit.models.zoo import smollm2_folder
from toolkit.terminal.progress import download_bar


def fetch(options: argparse.Namespace) -> int:
    with download_bar(options.model) as progress:
        folder = smollm2_folder(progress)
    print(folder)
    return 0
