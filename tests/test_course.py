"""Courses: from one TOML file to an exported head, stopped anywhere, on one process or two."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import loaded

from toolkit.drafting import Chain, DraftModel
from toolkit.engine import Engine
from toolkit.heads import SmallLM, dialects
from toolkit.models.assembled import assembled
from toolkit.models.hf import HFModel
from toolkit.models.zoo import Loaded
from toolkit.sampling import Sampling, Stopping
from toolkit.training import Look, Plan, Reader, Recipe, Shards, StepReport, Text, capture, fit, simulate, write_own
from toolkit.training.course import course
from toolkit.training.follow import Exported, follow
from toolkit.training.texts import load, save

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
PLAN = "[plan]\nepochs = 2\nbatch = 4\nrate = 1e-2\nwarmup = 2\nsteps = 3\nevery = 4\nheld = 4\nblocks = 6\n"


def chatty() -> Loaded:
    """The tiny model, whose tokenizer can write chats."""
    found = loaded()
    tokenizer = copy.deepcopy(found.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return Loaded(found.name, found.model, tokenizer)


def on_disk(folder: Path) -> Path:
    """The same as a folder that `--target` takes."""
    made = chatty()
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return folder


def texts(count: int = 20) -> list[Text]:
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(1, 200, (4 + i % 3,), generator=generator).tolist() for i in range(count)]
    session = Engine(HFModel(loaded().model), sampling=Sampling(0), stopping=Stopping(16)).generate(prompts)
    return [Text((*p, *out), ((len(p), len(p) + len(out)),)) for p, out in zip(prompts, session.outputs, strict=True)]


def written(folder: Path, head: str, target: str = "smollm2", plan: str = PLAN) -> Path:
    """A course on texts of a file."""
    folder.mkdir(parents=True, exist_ok=True)
    save(texts(), folder / "texts.jsonl")
    file = folder / "tiny.toml"
    file.write_text(
        f'target = "{target}"\ndtype = "float32"\n[[texts]]\nfile = "texts.jsonl"\n[head]\n{head}\n{plan}',
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize(
    ("head", "tensor"),
    [
        ('kind = "eagle3"\ndraft_vocab = 40\ntaps = [1, 2]', "lm_head.weight"),
        ('kind = "eagle1"', "fc.weight"),
        ('kind = "medusa"\nheads = 2', "0.0.linear.weight"),
        ('kind = "block"\nblock = 4\ntaps = [1, 2]\nlayers = 1', "fc.weight"),
        ('kind = "small"\nlayers = [1]', "layers.0.mlp.up_proj.weight"),
    ],
    ids=["eagle3", "eagle1", "medusa", "block", "small"],
)
def test_a_course_ends_with_a_head_on_disk(head: str, tensor: str, tmp_path: Path) -> None:
    file = written(tmp_path, head)
    reports = list(follow(course(file), chatty(), tmp_path / "work", "mine"))
    end = reports[-1]
    assert isinstance(end, Exported)
    assert (
        tensor in load_file(end.folder / "model.safetensors") if (end.folder / "model.safetensors").exists() else True
    )
    assert {"config.json"} < {p.name for p in end.folder.iterdir()}
    log = [json.loads(line) for line in (tmp_path / "work/mine/log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in log if "acceptance_length" in e] == [0, 4, 8]
    again = list(follow(course(file), chatty(), tmp_path / "work", "mine"))
    assert not any(isinstance(r, StepReport) for r in again), "it was finished"


def test_a_course_goes_on_from_the_head_of_another(tmp_path: Path) -> None:
    first = written(tmp_path, 'kind = "eagle3"\ndraft_vocab = 40\nnorms = true\ntaps = [1, 2]\nlm_head = "target"')
    second = tmp_path / "second.toml"
    second.write_text('start = "tiny.toml"\n' + first.read_text().replace("draft_vocab = 40", "draft_vocab = 60"))
    work = tmp_path / "work"
    reports = list(follow(course(second), chatty(), work, "mine"))
    ends = [r for r in reports if isinstance(r, Exported)]
    assert ends == reports[-1:] and ends[0].folder == work / "mine/head"
    target = HFModel(chatty().model)
    heads = [dialects.load(work / name / "head", target).head for name in ("mine-start", "mine")]
    grown = load_file(work / "mine-start/head/model.safetensors")
    assert "lm_head.weight" not in grown, "it stayed the target's"
    for head, count in zip(heads, (40, 60), strict=True):
        assert torch.equal(head.lm_head.weight, target.unembedding.weight.detach()[head.vocabulary.tokens].bfloat16())
        assert len(head.lm_head.weight) == count
    looks = [r for r in reports if isinstance(r, Look)]
    begun = [r for r in looks if r.step == 0]
    assert len(begun) == 2 and begun[1].simulated.acceptance_length > begun[0].simulated.acceptance_length
    kept = max((r for r in looks[looks.index(begun[1]) :]), key=lambda r: r.simulated.acceptance_length)
    assert torch.equal(heads[1].fc.weight, heads[0].fc.weight) == (kept.step == 0), "the best state is exported"
    again = list(follow(course(second), chatty(), work, "mine"))
    assert not any(isinstance(r, StepReport) for r in again), "both were finished"
    second.write_text(second.read_text().replace("tiny.toml", "work/mine-start/head"))
    looks = [r for r in follow(course(second), chatty(), work, "third") if isinstance(r, Look)]
    assert [r.step for r in looks if r.step == 0] == [0], "a head's folder needs no training"
    assert looks[0].simulated == begun[1].simulated
    second.write_text(second.read_text().replace("taps = [1, 2]", "taps = [1]"))
    with pytest.raises(ValueError, match="other sizes"):
        list(follow(course(second), chatty(), work, "mine"))
    second.write_text(second.read_text().replace("work/mine-start/head", "none/course.toml"))
    with pytest.raises(ValueError, match="give its head's folder"):
        course(second)
    second.write_text(second.read_text().replace("eagle3", "small"))
    with pytest.raises(ValueError, match="starts anew"):
        course(second)


def test_a_course_that_writes_its_own_texts(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'dtype = "float32"\n[[texts]]\ncount = 12\nrows = 4\nprompt_tokens = 4\nanswer_tokens = 8\nopenings = ["a", "b"]\n'
        f'answers = [{{}}, {{ temperature = 1.0 }}]\n[head]\nkind = "medusa"\nheads = 2\n{PLAN}'
    )
    reports = list(follow(course(file), chatty(), tmp_path / "work", "mine"))
    assert isinstance(reports[-1], Exported)
    (made,) = (tmp_path / "work").glob("texts-*.jsonl")
    assert len(load(made)) >= 12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("kind", 'knd = "x"\nkind'), "no field 'knd'"),
        (('"medusa"', '"hydra"'), "unknown kind of head 'hydra'"),
        (("epochs = 2", "epochs = 0"), "epochs must be at least 1"),
        (("[[texts]]", "[[text]]"), "no field 'text'"),
        (("rate = 1e-2", "rate = "), "is not TOML"),
        (("epochs = 2", 'epochs = 2\nobjective = { terms = [["cosine", 1.0]] }'), "unknown loss 'cosine'"),
        (("epochs = 2", 'epochs = 2\nobjective = { weigh = ["slow", 1.0] }'), "unknown way to weigh"),
        (('"medusa"', '"eagle3"\nlm_head = "none"'), "unknown lm_head 'none'"),
    ],
)
def test_a_course_that_is_wrong_is_refused_in_a_sentence(change: tuple[str, str], says: str, tmp_path: Path) -> None:
    file = written(tmp_path, 'kind = "medusa"')
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(ValueError, match=says):
        course(file)
    with pytest.raises(ValueError, match="cannot be read"):
        course(tmp_path / "none.toml")


def own(folder: Path, count: int, most: int | None = None) -> str:
    """The file that the target writes; broken off after `most` reports."""
    made = chatty()
    recipe = Recipe(("a", "b", ""), prompt_tokens=4, answer_tokens=6, rows=5, answers=(Sampling(0), Sampling(1.0)))
    engine = Engine(HFModel(made.model), stopping=Stopping(1), decode=made.decode)
    file = folder / "own.jsonl"
    for i, _ in enumerate(write_own(engine, made.tokenizer, file, count, recipe)):
        if most is not None and i >= most:
            break
    return file.read_text()


def test_a_target_writes_its_own_texts_and_goes_on_where_it_was(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    whole = own(tmp_path / "a", 25)
    for most in (1, 1, 2):
        part = own(tmp_path / "b", 25, most)
        assert whole.startswith(part)
        with (tmp_path / "b/own.jsonl").open("a") as stream:
            stream.write('{"tokens": [1, 2')  # killed in the middle of a line
    assert own(tmp_path / "b", 25) == whole
    found = load(tmp_path / "a/own.jsonl")
    assert len(found) >= 25
    for text in found:
        ((start, end),) = text.answers
        assert 0 < start < end == len(text.tokens) and end - start <= 6
    prompts = [text.tokens[: text.answers[0][0]] for text in found]
    assert len(set(prompts)) == len(prompts)
    greedy = Engine(HFModel(chatty().model), sampling=Sampling(0), stopping=Stopping(6))
    assert greedy.generate([prompts[0]]).outputs[0] == list(found[0].tokens[len(prompts[0]) :])


def test_another_recipe_does_not_go_on_with_a_file(tmp_path: Path) -> None:
    own(tmp_path, 5)
    made = chatty()
    engine = Engine(HFModel(made.model), stopping=Stopping(1), decode=made.decode)
    with pytest.raises(ValueError, match="another recipe"):
        list(write_own(engine, made.tokenizer, tmp_path / "own.jsonl", 5, Recipe(seed=3)))


def test_shards_give_some_of_their_taps(tmp_path: Path) -> None:
    target, some = HFModel(loaded().model), texts(6)
    list(capture(target, some, (0, 1, 2), tmp_path))
    for taps in ((2, 0), ("final",), (1, "final"), (), None):
        shards = Shards(tmp_path, taps)
        wanted = Reader(target, some, (0, 1, 2) if taps is None else taps)
        for a, b in zip(shards.told([4, 1]), wanted.told([4, 1]), strict=True):
            assert torch.allclose(a.feature, b.feature, atol=1e-5), taps
    with pytest.raises(ValueError, match="not tap 5"):
        Shards(tmp_path, (5,))


def test_a_small_lm_is_the_model_it_was_made_of_and_learns(tmp_path: Path) -> None:
    target = HFModel(loaded().model)
    every = SmallLM.of(target, (0, 1))
    token = torch.tensor([[5, 9, 33, 2]])
    with torch.inference_mode():
        assert torch.allclose(every.logits(every.speak(token)), target.model(token).logits, atol=1e-5)
    torch.manual_seed(0)
    small = SmallLM.of(target, (0, 1), horizon=3)
    for p in small.parameters():  # so that it is right now and then
        p.data += 0.3 * p.std() * torch.randn_like(p)
    plan = Plan(epochs=6, batch=4, rate=3e-3, warmup=2, steps=1, every=8, held=4)
    steps = [r for r in fit(small, target.unembedding, Reader(target, texts(), ()), plan) if isinstance(r, StepReport)]
    assert steps[-1].loss < 0.98 * steps[0].loss
    lm = assembled(target, 2, small.state_dict())
    some = texts()[:6]
    found = simulate(small, Reader(target, some, ()), range(6), depth=3)
    walked = 0
    for text in some:
        ((start, end),) = text.answers
        session = Engine(target, DraftModel(lm, Chain(3)), sampling=Sampling(0)).generate(
            [text.tokens[: start + 1]], stopping=Stopping(end - start - 1)
        )
        assert session.outputs[0] == list(text.tokens[start + 1 :])
        walked += len(session.trace.steps)
    assert walked == found.steps < found.tokens
    with pytest.raises(ValueError, match="layers 0 to 1"):
        SmallLM.of(target, (2,))


def command(file: Path, work: Path, *before: str) -> list[str]:
    return [sys.executable, *before, "-m", "toolkit", "train", str(file), "--folder", str(work), "--every", "0"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def reached(log: Path) -> int:
    """The last step in a log that may be in the middle of being written."""
    lines = log.read_text().splitlines() if log.exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


@pytest.mark.slow
def test_five_kills_at_random_moments_change_no_bit(tmp_path: Path) -> None:
    target = on_disk(tmp_path / "target")
    plan = PLAN.replace("epochs = 2", "epochs = 100").replace("every = 4", "every = 10")
    file = written(tmp_path, 'kind = "eagle3"\ndraft_vocab = 40\ntaps = [1, 2]', str(target), plan)
    subprocess.run(command(file, tmp_path / "a"), check=True, env=environment(), capture_output=True)
    chance = random.Random(1)
    for step in sorted(chance.sample(range(15, 330), 5)):  # of 400
        process = subprocess.Popen(command(file, tmp_path / "b"), env=environment(), stdout=subprocess.DEVNULL)
        while process.poll() is None and reached(tmp_path / "b/tiny/log.jsonl") < step:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        assert process.poll() is None, "it came to its end before it was killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command(file, tmp_path / "b"), check=True, env=environment(), capture_output=True)
    a, b = (load_file(tmp_path / x / "tiny/head/model.safetensors") for x in "ab")
    assert all(torch.equal(a[k], b[k]) for k in a)
    first, second = ((tmp_path / x / "tiny/log.jsonl").read_text().splitlines() for x in "ab")
    losses = [[(e["step"], e["loss"]) for e in map(json.loads, log) if "loss" in e] for log in (first, second)]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_two_processes_learn_as_one(tmp_path: Path) -> None:
    target = on_disk(tmp_path / "target")
    file = written(
        tmp_path,
        'kind = "eagle3"\ndraft_vocab = 40\ntaps = [1, 2]',
        str(target),
        PLAN.replace("epochs = 2", "epochs = 20"),
    )
    subprocess.run(command(file, tmp_path / "one"), check=True, env=environment(), capture_output=True)
    launch = (
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    )
    two = [sys.executable, *launch, *command(file, tmp_path / "two")[1:]]
    done = subprocess.run(two, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    curves = []
    for name in ("one", "two"):
        log = (tmp_path / name / "tiny/log.jsonl").read_text().splitlines()
        curves.append({e["step"]: e["loss"] for e in map(json.loads, log) if "loss" in e})
    assert curves[0].keys() == curves[1].keys() and len(curves[0]) >= 8
    for step, loss in curves[0].items():
        assert curves[1][step] == pytest.approx(loss, rel=1e-3), step
