"""The notebooks are programs: each is run from top to bottom and must print its sentence."""

from pathlib import Path

import nbformat
import pytest
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbconvert import HTMLExporter

FOLDER = Path(__file__).parents[1] / "notebooks"
SENTENCES = {
    "01_first_run.ipynb": [r"identical: \d+ tokens, \d\.\d\d tokens per target pass", "the parrot changes nothing: 1"],
    "02_drafters_and_trees.ipynb": [r"the same text 16 times of 16", r"calibration error 0\.\d\d", "the same text$"],
    "03_is_it_lossless.ipynb": [
        r"proved: total variation \de-\d+ instead of 0\.",
        r"caught: (\d+) of \1",
        "not refuted",
    ],
    "04_the_lab.ipynb": [
        r"paused after \d+ steps",
        "in the menu: Again - now with length 5",
        "the same text as plain decoding: ngram 2 of 2, Again 2 of 2",
        r"kept: \d+ steps",
    ],
    "05_serving.ipynb": [
        r"found instead of read: \d+ of \d+ prompt tokens",
        "was preempted, and its text is the same as alone",
        r"the same as alone: (\d) of \1",
        "everything adds up",
    ],
    "06_train_a_head.ipynb": [
        r"acceptance length 1\.\d\d before, [1-5]\.\d\d at its best",
        r"yours +[1-5]\.\d\d tokens a step",
        "T20",
    ],
    "07_your_own_head.ipynb": [r"soft ladder +\d\.\d\d before, \d\.\d\d at its best", "the same guesses, read from"],
}


def test_no_notebook_is_forgotten():
    assert {p.name for p in FOLDER.glob("*.ipynb")} == set(SENTENCES)


@pytest.mark.parametrize("name", SENTENCES)
def test_outputs_are_stripped(name):
    notebook = nbformat.read(FOLDER / name, as_version=4)
    assert all(not c.outputs and c.execution_count is None for c in notebook.cells if c.cell_type == "code")


@pytest.fixture(scope="module", params=list(SENTENCES))
def executed(request):
    notebook = nbformat.read(FOLDER / request.param, as_version=4)
    client = NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(FOLDER)}})
    try:
        client.execute()
    finally:  # a test that ran out of time must not leave a kernel behind that trains beside the next one
        if client.km is not None and client.km.has_kernel:
            run_sync(client.km.shutdown_kernel)(now=True)
    return request.param, notebook


@pytest.mark.slow
@pytest.mark.alone
def test_it_says_its_sentences(executed):
    import re

    name, notebook = executed
    printed = "\n".join(
        o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "stream"
    )
    for sentence in SENTENCES[name]:
        assert re.search(sentence, printed, re.MULTILINE), printed


@pytest.mark.slow
@pytest.mark.alone
def test_saved_and_exported_it_still_shows_the_last_tree(executed):
    """Without a kernel and without our scripts: the picture beside the widget holds the state at the end of the run."""
    name, notebook = executed
    if not name.startswith("01"):
        return  # no laboratory in it
    page, _ = HTMLExporter().from_notebook_node(notebook)
    pictures = page.split('class="specdec-static"')[1:]
    assert pictures and "<svg" in pictures[0] and "tokens in" in pictures[0] and "accepted" in pictures[0]
