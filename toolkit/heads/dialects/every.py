"""Every layout that is known. A new one is a file with a `Dialect`, and a line here; of two that fit alike the first is taken."""

from __future__ import annotations

from toolkit.heads.dialects import (
    deepspec,
    dflash,
    eagle1,
    eagle3,
    medusa,
    medusa_vllm,
    modelopt,
    mtp,
    specforge,
    speculators_dflash,
    speculators_dspark,
    speculators_eagle3,
    speculators_mtp,
    speculators_peagle,
)
from toolkit.heads.dialects.values import Dialect

DIALECTS: tuple[Dialect, ...] = (
    eagle1.DIALECT,
    eagle3.DIALECT,
    specforge.DIALECT,
    modelopt.DIALECT,
    speculators_eagle3.DIALECT,
    speculators_peagle.DIALECT,
    speculators_dspark.DIALECT,
    deepspec.DIALECT,
    dflash.DIALECT,
    speculators_dflash.DIALECT,
    mtp.DIALECT,
    speculators_mtp.DIALECT,
    medusa.SAFE,
    medusa.PICKLED,
    medusa_vllm.DIALECT,
)


def named(name: str) -> Dialect:
    """Raises ValueError for a name that no layout has."""
    found = next((d for d in DIALECTS if d.name == name), None)
    if found is None:
        raise ValueError(f"there is no layout {name!r}: use one of {', '.join(d.name for d in DIALECTS)}")
    return found
