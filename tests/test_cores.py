import os
import threading
from pathlib import Path

import pytest
import torch

from toolkit.engine import give_back_cores
from toolkit.engine.cores import _gnu_openmp

pytestmark = pytest.mark.skipif(
    not _gnu_openmp() or not Path("/proc/self/task").is_dir() or (os.cpu_count() or 1) < 2,
    reason="looks at the helper threads of GNU's OpenMP in /proc, and needs two cores",
)


def test_helpers_end_and_come_back():
    def work() -> torch.Tensor:
        return torch.ones(400, 400) @ torch.ones(400, 400)

    counts = []

    def look() -> None:
        for act in (work, give_back_cores, work, give_back_cores):
            act()
            counts.append(len(list(Path("/proc/self/task").iterdir())))
        assert torch.equal(work(), torch.full((400, 400), 400.0))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    assert counts[0] == counts[1] + 1 == counts[2] == counts[3] + 1, counts
