"""specdec-toolkit: the notebook laboratory for speculative decoding.

    from toolkit.widgets import Lab
    lab = Lab("smollm2", drafter="ngram", prompt="Explain why the sky is blue.")
    lab

The parts of a step live in rooms of their own: `tree`, `sampling`, `verification`, `cache`, `models`, `drafting`,
`trace`, `engine`, `bench`, `widgets`. `toolkit.protocols` names the sockets they plug into.
"""

__version__ = "0.1.0"
