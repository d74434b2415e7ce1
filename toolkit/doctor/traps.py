"""The twenty ways in which a draft head is misread. None raises an error by itself; each costs acceptance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trap:
    """number as in the reports; title: what is to be right."""

    number: int
    title: str
    why: str

    @property
    def name(self) -> str:
        return f"T{self.number}"


TRAPS: tuple[Trap, ...] = (
    Trap(1, "taps are counted the right way", "id j is hidden_states[j] for some, the output of layer j for others"),
    Trap(2, "the last layer's tap is raw or normed as trained", "transformers' last hidden state is normed"),
    Trap(3, "EAGLE-1 reads the normed last state", "EAGLE-3 reads raw states in the middle"),
    Trap(4, "norm_before_residual", "the residual path starts before or after the first layer's norm"),
    Trap(5, "norm_output", "the state handed on is the one before or after the last norm"),
    Trap(6, "norms of the features", "fc_norm and norm_before_fc stand in three different places of configs"),
    Trap(7, "the draft vocabulary's table", "d2t holds offsets for some and ids for others, sorted or not"),
    Trap(8, "embeddings", "a head's own, the target's, or either scaled"),
    Trap(9, "the LM head", "absent or never trained, the target's rows stand in"),
    Trap(10, "position of the first pair", "0 in the official code, 1 in others"),
    Trap(11, "rotary base", "exporters copy the target's or a default"),
    Trap(12, "numbers that float16 cannot hold", "some targets' features overflow it"),
    Trap(13, "chat template", "a head trained on chats guesses badly on bare text, and the other way round"),
    Trap(14, "data from this target", "a head learns one model's habits"),
    Trap(15, "the target is not rotated", "quantizers rotate hidden states, which taps then see"),
    Trap(16, "width of the vocabulary", "targets pad it, heads were cut before"),
    Trap(17, "what the config says of the layers", "layouts copy a plain model's fields"),
    Trap(18, "prefixes of names", "trainers wrap the head"),
    Trap(19, "number of taps", "the width of fc tells it, the config may not"),
    Trap(20, "blocks", "block size, and whether place 0 guesses"),
)


def trap(number: int) -> Trap:
    return TRAPS[number - 1]
