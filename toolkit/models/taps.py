"""Hidden states on their way out: forward hooks that live as long as one read.

transformers' own `hidden_states[L]` comes after the final norm, so the raw output of the last layer can only be had by
a hook.

Letters: B rows, M nodes just read, F features, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from toolkit.protocols import Tap


def layers_of(model: PreTrainedModel) -> nn.ModuleList | None:
    """The decoder layers, in order, or None when there is no such list."""
    count = model.config.get_text_config().num_hidden_layers
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    return lists[0] if lists else None


class Taps:
    """A context manager around one forward pass that catches the states asked for."""

    def __init__(self, model: PreTrainedModel, layers: nn.ModuleList, taps: Sequence[Tap]) -> None:
        for tap in taps:
            if tap != "final" and not 0 <= tap <= len(layers):
                raise ValueError(f"tap {tap!r} does not exist: use 0 (embeddings) to {len(layers)}, or 'final'")
        self.model, self.layers, self.taps = model, layers, tuple(taps)
        self.caught: dict[Tap, Tensor] = {}
        self.handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for tap in dict.fromkeys(self.taps):
            if tap == 0:
                self.handles.append(self.layers[0].register_forward_pre_hook(self._before(tap), with_kwargs=True))
            elif tap == "final":
                self.handles.append(self._owner().register_forward_hook(self._after(tap)))
            else:
                self.handles.append(self.layers[tap - 1].register_forward_hook(self._after(tap)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self.handles:
            handle.remove()

    def features(self) -> Tensor | None:
        """[B, M, F] the tapped states side by side, in the order asked for; None without taps."""
        if not self.taps:
            return None
        states = [self.caught[tap] for tap in self.taps]
        return torch.cat([s.to(states[0].device) for s in states], -1)

    def _owner(self) -> nn.Module:
        """The module that the layers stand in, whose output comes after the last norm. `base_model` may be one around it that
        the model's own forward passes by (OPT)."""
        return next(m for m in self.model.modules() if any(child is self.layers for child in m.children()))

    def _before(self, tap: Tap) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.caught[tap] = args[0] if args else kwargs["hidden_states"]

        return hook

    def _after(self, tap: Tap) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            self.caught[tap] = out if isinstance(out, Tensor) else out[0]

        return hook
