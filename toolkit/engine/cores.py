"""Hand the CPU from one thread to another.

Every thread that runs a parallel torch operation on a CPU gets helper threads of its own from OpenMP, and they stay when
it is done. GNU's OpenMP then counts more threads than cores, stops waiting actively, and the next thread's operations
pay a wake-up each: with two cores a model ran at half its speed. So whoever hands torch's work over lets its helpers go.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

SOFT = 1  # omp_pause_soft of the OpenMP 5.0 standard, section 3.2.43: helpers end and come back when needed


def give_back_cores() -> None:
    """End the calling thread's idle OpenMP helpers; its next parallel operation makes new ones, in about 0.1 ms. Does
    nothing where torch does not come with GNU's OpenMP."""
    if library := _gnu_openmp():
        library.omp_pause_resource_all(SOFT)


def takes_every_core(device: torch.device) -> bool:
    """Does a model on this device compute on all cores that this process may use, so that whatever else runs on this
    machine slows it down."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return device.type == "cpu" and torch.get_num_threads() >= mine


@cache
def _gnu_openmp() -> ctypes.CDLL | None:
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    library = ctypes.CDLL(str(found[0])) if found else None
    return library if library and hasattr(library, "omp_pause_resource_all") else None
