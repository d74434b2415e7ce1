"""No guess at all. With it the engine is plain autoregressive decoding, through the very same loop."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.protocols import Context, Proposal
from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Nothing:
    """Proposes the pending token alone: a tree of one node."""

    def propose(self, context: Context) -> Proposal:
        return Proposal(TokenTree.chain(context.pending))
