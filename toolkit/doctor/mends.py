"""Changes to the tensors themselves, where no reading of a checkpoint can be right.

Letters: V vocabulary of the target, W tokens that the head says, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from toolkit.doctor.case import Case, Guess
from toolkit.heads.dialects import Loaded
from toolkit.heads.dialects.embeddings import rows
from toolkit.heads.dialects.tapping import spread, usual
from toolkit.models.hf import HFModel

_EMBED, _LM_HEAD, _FC = "embed_tokens.weight", "lm_head.weight", "fc.weight"


def mends(case: Case, loaded: Loaded | None, target: HFModel) -> Iterator[Guess]:
    """Every change that may help. `loaded` is None where the checkpoint can't be read at all."""
    if loaded is None:
        yield from _bare_names(case)
        yield from _padded(case, target)
        yield from _counted_taps(case, target)
        yield from _without_norms(case)
    yield from _table(case, loaded, target)
    if loaded is not None:
        yield from _scaled(case, loaded, target)
        yield from _taught(case, loaded, target)
        yield from _rotated(case, target)
        yield from _blocks(case, loaded)


def _bare_names(case: Case) -> Iterator[Guess]:
    """Whatever all names have in common before a dot."""
    first, *rest = case.checkpoint.tensors or [""]
    parts = first.split(".")[:-1]
    while parts and not all(name.startswith(".".join(parts) + ".") for name in rest):
        parts.pop()
    if prefix := "".join(f"{part}." for part in parts):
        bare = replace(case, checkpoint=case.checkpoint.without(prefix))
        yield Guess(18, f"its tensors' names begin with {prefix!r}", f"take {prefix!r} off the names", bare)


def _padded(case: Case, target: HFModel) -> Iterator[Guess]:
    """Tables as wide as another vocabulary, cut or filled up to the target's."""
    changed: dict[str, Tensor | None] = {}
    width = 0
    reduced = case.find("d2t") is not None
    for stem in (_EMBED, "t2d", *(() if reduced else (_LM_HEAD,))):
        name = case.find(stem)
        old = None if name is None else case.checkpoint.tensors[name]
        if name is not None and old is not None and len(old) != target.vocab:
            width = len(old)
            new = old.new_zeros(target.vocab, *old.shape[1:])
            new[: min(len(old), target.vocab)] = old[: target.vocab]
            changed[name] = new
    if changed:
        what = "cut" if width > target.vocab else "fill up"
        wrong = f"its tables are for {width} tokens, and the target has {target.vocab}"
        yield Guess(
            16,
            wrong,
            f"{what} {', '.join(changed)} to {target.vocab} rows",
            case.changed(changed, vocab_size=target.vocab),
        )


def _counted_taps(case: Case, target: HFModel) -> Iterator[Guess]:
    name, size = case.find(_FC), int(target.config.hidden_size)
    width = case.checkpoint.tensors[name].shape[-1] if name else 0
    count = width // size
    if not count or width % size:
        return
    some = [t for t in (usual(target), spread(target, count)) if len(t) == count]
    if count == target.layers + 1:
        some.append(tuple(range(count)))
    for taps in dict.fromkeys(some):
        said = ", ".join(map(str, taps))
        yield Guess(
            19, f"its weights are for {count} taps, and others are named", f"taps=({said},)", case.read(taps=taps)
        )


def _without_norms(case: Case) -> Iterator[Guess]:
    for name in ("fc_norm", "input_norm"):
        if not case.find(f"{name}.weight") and not case.find(f"{name}.0.weight"):
            yield Guess(
                6, f"its config asks for {name}, and there is none", f"{name}=False", case.read(**{name: False})
            )


def _table(case: Case, loaded: Loaded | None, target: HFModel) -> Iterator[Guess]:
    """The draft vocabulary from the other table, or from the rows of the LM head, which resemble the target's."""
    head, known, table = (case.find(stem) for stem in (_LM_HEAD, "t2d", "d2t"))
    said = None if head is None else case.checkpoint.tensors[head]
    if head is None or said is None or len(said) >= target.vocab or said.shape[-1] != target.unembedding.in_features:
        return
    prefix = head.removesuffix(_LM_HEAD)
    mask = None if known is None else case.checkpoint.tensors[known].bool()
    if mask is not None and len(mask) == target.vocab and int(mask.sum()) == len(said):
        tokens = mask.nonzero()[:, 0]
        yield Guess(
            7,
            "d2t is not what it was trained with",
            "make d2t from t2d",
            _with_table(case, prefix, tokens, target.vocab),
        )
    tokens = _nearest(said, target.unembedding.weight.detach())
    if tokens is not None:
        wrong = "d2t is not what it was trained with" if table else "d2t is missing"
        yield Guess(
            7,
            wrong,
            "make d2t from the LM head's rows, each next to its target's",
            _with_table(case, prefix, tokens, target.vocab),
        )


def _with_table(case: Case, prefix: str, tokens: Tensor, vocab: int) -> Case:
    mask = torch.zeros(vocab, dtype=torch.bool).index_fill(0, tokens, True)
    made = case.changed({prefix + "d2t": tokens - torch.arange(len(tokens)), prefix + "t2d": mask})
    return replace(made, overrides={k: v for k, v in made.overrides.items() if k != "d2t"})


def _nearest(said: Tensor, target: Tensor, among: int = 8) -> Tensor | None:
    """[W] for each row one of the target's rows that it is most like, no two the same: the likeliest pairs first. None where
    rows are like no row in particular."""
    own = torch.nn.functional.normalize(said.float(), dim=-1)
    theirs = torch.nn.functional.normalize(target.float().cpu(), dim=-1)
    best = [(part @ theirs.T).topk(min(among, len(theirs)), -1) for part in own.split(1024)]
    likeness, token = torch.cat([b.values for b in best]), torch.cat([b.indices for b in best])  # [W, among]
    if float(likeness[:, 0].median()) < 0.4:
        return None
    found, taken = torch.full((len(said),), -1), set()
    for pair in likeness.flatten().argsort(descending=True).tolist():
        row, one = pair // token.shape[1], int(token.flatten()[pair])
        if found[row] < 0 and one not in taken:
            found[row] = one
            taken.add(one)
    left = iter(t for t in range(len(theirs)) if t not in taken)
    for row in (found < 0).nonzero()[:, 0].tolist():
        found[row] = next(left)
    return found


def _scaled(case: Case, loaded: Loaded, target: HFModel) -> Iterator[Guess]:
    """Embeddings of another scale, the head's own or the target's."""
    theirs = rows(target, torch.float32)
    own = case.find(_EMBED) if loaded.conventions.embeddings == "own" else None
    if loaded.conventions.embeddings is None or (own is None and len(theirs) * theirs.shape[1] > 2**27):
        return  # a copy of large embeddings only to try them costs more than it tells
    base = theirs if own is None else case.checkpoint.tensors[own].float()
    if base.shape != theirs.shape:
        return
    ratio = float(theirs.norm(dim=-1).median() / base.norm(dim=-1).median())
    size = sqrt(base.shape[1])
    prefix = (case.find(_FC) or _FC).removesuffix(_FC)
    for factor in dict.fromkeys(round(f, 4) for f in (ratio, size, 1 / size)):
        if abs(factor - 1) > 0.02:
            made = case.changed({own or prefix + _EMBED: base * factor}).read(embeddings="own")
            whose = "the target's" if own is None else "its own"
            yield Guess(
                8,
                f"{whose} embeddings have another scale than it was trained with",
                f"multiply them by {factor:g}",
                made,
            )


def _taught(case: Case, loaded: Loaded, target: HFModel) -> Iterator[Guess]:
    """The target's own rows in place of the head's LM head."""
    name = case.find(_LM_HEAD)
    vocabulary: Any = getattr(loaded.head, "vocabulary", None)
    theirs = target.unembedding.weight.detach().cpu()
    if name is None or case.checkpoint.tensors[name].shape[-1] != theirs.shape[-1]:
        return
    made = theirs if vocabulary is None else theirs[vocabulary.tokens.cpu()]
    if made.shape == case.checkpoint.tensors[name].shape:
        yield Guess(
            9,
            "its LM head is not one that was trained",
            "the target's rows in its place",
            case.changed({name: made.float()}),
        )


def _rotated(case: Case, target: HFModel) -> Iterator[Guess]:
    """Is the target a rotated one: then its embeddings are the head's own, turned, and its features are turned alike."""
    own, fc = case.find(_EMBED), case.find(_FC)
    if own is None or fc is None:
        return
    mine, theirs = case.checkpoint.tensors[own].double(), rows(target, torch.float64)
    weight, size = case.checkpoint.tensors[fc], theirs.shape[1]
    if mine.shape != theirs.shape or weight.shape[1] % size:
        return
    u, _, v = torch.linalg.svd(mine.T @ theirs)  # orthogonal Procrustes: mine @ turn is next to theirs
    turn = u @ v
    if float((mine @ turn - theirs).norm()) > 0.9 * float((mine - theirs).norm()):
        return  # turning brings the two no nearer
    norms = _norms(case, weight.shape[1], size)
    straight = weight.double() * torch.cat([t.double().flatten() for t in norms.values()]) if norms else weight.double()
    parts = [part @ turn for part in straight.split(size, 1)]
    ones = {name: torch.ones_like(norm) for name, norm in norms.items()}  # only a plain norm does not mind being turned
    folded = case.changed({fc: torch.cat(parts, 1).to(weight.dtype), **ones}).read(embeddings="own")
    yield Guess(15, "the target's hidden states are rotated", "fold the rotation into fc", folded)


def _norms(case: Case, width: int, size: int) -> dict[str, Tensor]:
    """The weights of the norms before fc, one over all features or one a tap, in order; {} for none."""
    for stems in (["input_norm.weight"], [f"fc_norm.{i}.weight" for i in range(width // size)]):
        found = {name: case.checkpoint.tensors[name] for stem in stems if (name := case.find(stem))}
        if len(found) == len(stems):
            return found
    return {}


def _blocks(case: Case, loaded: Loaded) -> Iterator[Guess]:
    block = getattr(loaded.head, "block", None)
    if not isinstance(block, int):
        return
    names = [n for n in ("block_size",) if n in case.checkpoint.config]
    for size in (block - 1, block + 1):
        if names and size > 1:
            yield Guess(
                20, f"it was not trained on blocks of {block}", f"block_size={size}", case.changed({}, block_size=size)
            )
