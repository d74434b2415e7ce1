import math

import pytest

from toolkit.bench import Comparison, Sample, interleave


def arms(log: list[str]):
    def arm(name: str):
        def run():
            log.append(name)
            return [1, 2, 3], []

        return run

    return {name: arm(name) for name in "abc"}


def test_arms_take_turns_in_rotated_order_and_the_warm_up_is_left_out():
    log: list[str] = []
    result = interleave(arms(log), repeats=3, warmup=1)
    assert "".join(log) == "abc" + "bca" + "cab" + "abc"
    assert len(result.rounds) == 3 and result.arms == ["a", "b", "c"] and result.baseline == "a"
    assert all(s.tokens == (1, 2, 3) and s.seconds > 0 for s in result.samples("b"))


def test_ratios_are_taken_within_a_round():
    def sample(seconds: float) -> Sample:
        return Sample((1,) * 10, seconds)

    result = Comparison(
        ("a", "b"), [{"a": sample(1), "b": sample(0.5)}, {"b": sample(4), "a": sample(16)}, {"a": sample(2)}]
    )
    assert result.ratios("b") == [2, 4] and result.ratio("b") == 3 and result.ratio("a") == 1
    assert result.rate("a") == 5
    assert math.isnan(result.ratio("c")) and math.isnan(result.rate("c"))


def test_an_interrupt_keeps_the_rounds_so_far():
    log: list[str] = []
    some = arms(log)

    def stop():
        if len(log) > 7:
            raise KeyboardInterrupt
        return [1], []

    result = interleave({**some, "stop": stop}, repeats=5, warmup=1)
    assert result.interrupted and result.samples("a")


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="nothing to compare"):
        interleave({})
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        interleave(arms([]), repeats=0)
