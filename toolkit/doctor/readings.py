"""Other ways to read the same tensors: every convention the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.doctor.case import Case, Guess
from toolkit.heads.config import HeadConfig
from toolkit.heads.dialects import Loaded
from toolkit.heads.dialects.tapping import spread, usual
from toolkit.models.hf import HFModel
from toolkit.protocols import Tap

_FLAGS = {
    "norm_before_residual": (4, "the first layer's residual path"),
    "norm_output": (5, "the state that is handed on"),
    "fc_norm": (6, "the norm of each tap"),
    "input_norm": (6, "the norm of all taps together"),
}
_THETAS = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0)


def readings(case: Case, loaded: Loaded, target: HFModel) -> Iterator[Guess]:
    """Every other way to read what was loaded as `loaded` from `case`."""
    yield from _taps(case, loaded, target)
    told = loaded.conventions
    for name, (trap, what) in _FLAGS.items():
        if (now := getattr(told, name)) is not None:
            yield Guess(
                trap,
                f"{name}={now} is not how it was trained ({what})",
                f"{name}={not now}",
                case.read(**{name: not now}),
            )
    if told.d2t is not None:
        other = "absolute" if told.d2t == "offset" else "offset"
        yield Guess(7, f"d2t does not hold {told.d2t} values", f"d2t={other!r}", case.read(d2t=other))
    if told.embeddings is not None:
        other = "target" if told.embeddings == "own" else "own"
        yield Guess(
            8,
            f"it was not trained with the {told.embeddings} embeddings",
            f"embeddings={other!r}",
            case.read(embeddings=other),
        )
    if told.first is not None:
        yield Guess(
            10,
            f"its first pair was not at position {told.first}",
            f"first={1 - told.first}",
            case.read(first=1 - told.first),
        )
    if told.rope_theta is not None:
        for theta in dict.fromkeys((*_THETAS, HeadConfig.of(target).rope_theta)):
            if theta != told.rope_theta:
                wrong = f"it was not trained with the rotary base {told.rope_theta:g}"
                yield Guess(11, wrong, f"rope_theta={theta:g}", case.read(rope_theta=theta))
    if told.anchored is not None:
        now = told.anchored
        yield Guess(
            20,
            f"place 0 of a block {'does not guess' if now else 'guesses'}",
            f"anchored={not now}",
            case.read(anchored=not now),
        )


def _taps(case: Case, loaded: Loaded, target: HFModel) -> Iterator[Guess]:
    taps = loaded.conventions.taps or ()

    def other(trap: int, wrong: str, new: tuple[Tap, ...]) -> Guess:
        return Guess(trap, f"{wrong}: it reads taps {_list(taps)}", f"taps=({_list(new)},)", case.read(taps=new))

    for by in (1, -1):
        new = _moved(taps, by)
        if new != taps and all(isinstance(t, str) or 0 <= t <= target.layers for t in new):
            yield other(1, "its layers are counted the other way", new)
    known = (taps, _moved(taps, 1), _moved(taps, -1))
    for new in dict.fromkeys((usual(target), spread(target, len(taps)))):
        if len(new) == len(taps) and new not in known:
            yield other(1, "these are not the layers it was trained on", new)
    last = 3 if taps in (("final",), (target.layers,)) else 2
    if "final" in taps:
        raw: tuple[Tap, ...] = tuple(target.layers if t == "final" else t for t in taps)
        yield other(last, "it was trained on the last layer's raw output", raw)
    if target.layers in taps:
        normed: tuple[Tap, ...] = tuple("final" if t == target.layers else t for t in taps)
        yield other(last, "it was trained on the last layer's normed output", normed)


def _moved(taps: tuple[Tap, ...], by: int) -> tuple[Tap, ...]:
    return tuple(t if isinstance(t, str) else t + by for t in taps)


def _list(taps: tuple[Tap, ...]) -> str:
    return ", ".join(str(t) for t in taps)
