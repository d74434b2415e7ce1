"""A checkpoint written anew, so that whoever believes it reads it rightly."""

from __future__ import annotations

from pathlib import Path

import torch

from toolkit.doctor.diagnose import Diagnosis
from toolkit.doctor.exam import Exam, grade
from toolkit.heads import dialects
from toolkit.models.hf import HFModel


def repair(
    found: Diagnosis, folder: str | Path, target: HFModel, exam: Exam, *, dialect: str | None = None
) -> tuple[str, ...]:
    """Write the head as it should be read into an empty folder, in its own layout or another, read it again and grade it.

    Returns what there is to say about it. Raises ValueError where the layout has no words for it, and RuntimeError where what
    was written does not guess as it should.
    """
    kind = next((t.dtype for t in found.case.checkpoint.tensors.values() if t.is_floating_point()), torch.float32)
    overflow = any(f.trap == 12 for f in found.findings)
    head = found.loaded.head.to(torch.bfloat16 if overflow and kind == torch.float16 else kind)
    try:
        notes = dialects.save(head, folder, dialect or found.dialect, target=target)
    finally:
        found.loaded.head.to(torch.float32)
    again = dialects.load(folder, target, dtype=torch.float32)
    graded = grade(again.head, exam)
    if graded.cross_entropy > found.after.cross_entropy + 0.05:
        raise RuntimeError(
            f"the repaired checkpoint in {folder} guesses worse than the head it was made of ({graded.cross_entropy:.3f} nats "
            f"against {found.after.cross_entropy:.3f}): its layout {again.dialect!r} does not say all of it; name another by dialect"
        )
    return notes
