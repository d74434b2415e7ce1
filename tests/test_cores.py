import os
import threading
from pathlib import Path
from time import monotonic, sleep

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

    def threads() -> set[str]:
        return {task.name for task in Path("/proc/self/task").iterdir()}

    def gone(helpers: set[str]) -> bool:
        deadline = monotonic() + 5  # the system shows an ended thread for a moment longer
        while helpers & threads() and monotonic() < deadline:
            sleep(0.001)
        return not helpers & threads()

    found = []

    def look() -> None:
        for _ in range(2):
            before = threads()
            assert torch.equal(work(), torch.full((400, 400), 400.0))
            helpers = threads() - before
            give_back_cores()
            found.append((len(helpers), gone(helpers)))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    assert len(found) == 2
    assert all(helpers >= 1 and ended for helpers, ended in found), found
