"""`python -m toolkit`: the command line. Only the parser lives here, so that `--help` answers without loading torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

EXAMPLES = """examples:
  python -m toolkit generate "Why is the sky blue?" --drafter ngram
  python -m toolkit generate "Write a haiku." --temperature 0.8 --seed 3 --drafter early-exit --shape dynamic
  python -m toolkit generate "List three colours." --plain --max-new-tokens 40
  python -m toolkit generate "Summarise: ..." --drafter ngram --compare
  echo "Why is the sky blue?" | python -m toolkit generate - --plain
"""


SERVE_EXAMPLES = """examples:
  python -m toolkit serve prompts.txt --rows 8 --trace run.json
  python -m toolkit serve prompts.jsonl --limit 32 --compare --drafter none,ngram
  python -m toolkit serve prompts.jsonl --limit 32 --sweep --rows 32 --figure batch.html
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 2 for bad input (one sentence on stderr), 130 when interrupted."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        if options.command == "fetch":
            from toolkit.commands.fetch import fetch

            return fetch(options)
        if options.command == "serve":
            from toolkit.commands.serve import serve

            return serve(options)
        if options.command == "bench":
            from toolkit.commands.bench import bench

            return bench(options)
        if options.command == "train":
            from toolkit.commands.train import train

            return train(options)
        if options.command == "doctor":
            from toolkit.commands.doctor import doctor

            return doctor(options)
        from toolkit.commands.generate import generate

        return generate(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, RuntimeError) as error:
        print(f"specdec: {error}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m toolkit",
        description="The laboratory for speculative decoding, without a notebook.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_generate(commands)
    _add_serve(commands)
    _add_bench(commands)
    _add_train(commands)
    _add_doctor(commands)
    fetch = commands.add_parser("fetch", help="fetch the default model ahead of its first use")
    fetch.add_argument("model", nargs="?", default="smollm2", choices=["smollm2"], help="default: %(default)s")
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser(
        "serve",
        help="many prompts through one server: run, compare, or measure as the batch grows",
        description="Serve all prompts of a file with continuous batching.",
        epilog=SERVE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("file", metavar="FILE", help='one prompt a line: text, or JSON with "prompt" or "turns"')
    p.add_argument("--limit", type=int, metavar="N", help="so many prompts, spread over the file (default: all)")
    p.add_argument("--target", default="smollm2", metavar="MODEL", help="default: %(default)s")
    p.add_argument(
        "--dtype",
        default="fastest",
        help="bfloat16 where the device has arithmetic for it, else float32 (default: %(default)s)",
    )
    p.add_argument("--device", default="cpu", help="default: %(default)s")
    p.add_argument("--threads", type=int, metavar="N", help="CPU threads for torch (default: torch's own choice)")
    p.add_argument("--no-chat", action="store_true", help="take prompts as bare text, without the chat template")
    p.add_argument(
        "--drafter", default="ngram", metavar="NAMES", help="one, or several with commas (default: %(default)s)"
    )
    p.add_argument(
        "--rows", type=int, default=8, metavar="N", help="requests in a batch at most (default: %(default)s)"
    )
    p.add_argument("--pages", type=int, metavar="N", help="pages of 16 tokens in the cache (default: 1024)")
    p.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="default: %(default)s")
    p.add_argument(
        "--trace", metavar="FILE", help="write the run: .json for Perfetto, .jsonl or .parquet to load again"
    )
    p.add_argument("--metrics", action="store_true", help="print the run's metrics as Prometheus text")
    p.add_argument(
        "--compare", action="store_true", help="against transformers' generate and generate_batch, interleaved"
    )
    p.add_argument("--sweep", action="store_true", help="batches of 1, 2, 4 ... rows, with and without drafting")
    p.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds of a measurement (default: %(default)s)")
    p.add_argument("--json", metavar="FILE", help="--compare, --sweep: write the figures to FILE")
    p.add_argument("--figure", metavar="FILE", help="--sweep: write a chart that needs no network to FILE.html")


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser(
        "bench",
        help="acceptance and speed by task, of heads and other drafters",
        description="Let drafters answer a file of questions in turn, at temperature 0.",
    )
    p.add_argument("file", metavar="FILE", help='JSON lines with "prompt" or "turns", and "task"')
    p.add_argument(
        "--drafters",
        default="none,ngram",
        metavar="NAMES",
        help="none, ngram, ...; a head that the package holds, or KIND=FOLDER for one of yours (default: %(default)s)",
    )
    p.add_argument("--shapes", default="chain,tree", metavar="NAMES", help="of heads' guesses (default: %(default)s)")
    p.add_argument("--nodes", type=int, default=32, metavar="N", help="of a tree (default: %(default)s)")
    p.add_argument("--per-task", type=int, metavar="N", help="so many questions of each task (default: all)")
    p.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="default: %(default)s")
    p.add_argument("--speed", action="store_true", help="measure transformers' generate as well, in the same turns")
    p.add_argument("--target", default="smollm2", metavar="MODEL", help="default: %(default)s")
    p.add_argument(
        "--dtype",
        default="fastest",
        help="bfloat16 where the device has arithmetic for it, else float32 (default: %(default)s)",
    )
    p.add_argument("--threads", type=int, metavar="N", help="CPU threads for torch (default: torch's own choice)")
    p.add_argument("--cards", action="store_true", help="write each head's card.md beside it")
    p.add_argument(
        "--log", metavar="FILE", help="keep every answer in FILE, and ask again only for those that it lacks"
    )


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser(
        "train",
        help="train a draft head by a course: texts, capture, fit, export",
        description="Follow a course, a TOML file. Whatever was stopped goes on where it was.",
    )
    p.add_argument("course", metavar="COURSE", help="a TOML file; some for the default model lie in toolkit/shipped")
    p.add_argument(
        "--folder", default="heads", metavar="FOLDER", help="for texts, captures and heads (default: %(default)s)"
    )
    p.add_argument("--name", metavar="NAME", help="of the head's own folder (default: that of the course)")
    p.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    p.add_argument(
        "--every", type=float, default=10.0, metavar="S", help="seconds between two lines (default: %(default)s)"
    )


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser(
        "doctor",
        help="find out why a draft head guesses badly, and repair its checkpoint",
        description="Grade a checkpoint of a draft head under every reading that is known to go wrong. Exit status 1 for findings.",
    )
    p.add_argument("head", metavar="HEAD", help="a folder, or a file of weights")
    p.add_argument("--target", default="smollm2", metavar="MODEL", help="default: %(default)s")
    p.add_argument("--dtype", default="fastest", help="of the target (default: %(default)s)")
    p.add_argument("--device", default="cpu", help="default: %(default)s")
    p.add_argument(
        "--texts", metavar="FILE", help="JSON lines to grade by (default: questions of our own, answered by the target)"
    )
    p.add_argument(
        "--tokens", type=int, default=240, metavar="N", help="tokens of answers to grade by (default: %(default)s)"
    )
    p.add_argument("--no-chat", action="store_true", help="put the questions bare, without the chat template")
    p.add_argument("--html", metavar="FILE", help="write the report to FILE.html as well")
    p.add_argument("--repair", metavar="FOLDER", help="write the head as it should be read into a new folder")
    p.add_argument("--dialect", metavar="NAME", help="--repair: write it in this layout (default: its own)")


def _add_generate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser(
        "generate",
        help="generate text, live, or compare drafters",
        description="Generate text for one prompt with a live view of every step.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("prompt", metavar="PROMPT", help="the prompt, or - for standard input")
    model = p.add_argument_group("model")
    model.add_argument(
        "--target",
        default="smollm2",
        metavar="MODEL",
        help="smollm2, a Hugging Face id or a folder (default: %(default)s)",
    )
    model.add_argument(
        "--dtype",
        default="fastest",
        help="bfloat16, float16, float32, float64, or fastest on the device (default: %(default)s)",
    )
    model.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps ... (default: %(default)s)")
    model.add_argument("--threads", type=int, metavar="N", help="CPU threads for torch (default: torch's own choice)")
    model.add_argument("--no-chat", action="store_true", help="take the prompt as bare text, without the chat template")
    draft = p.add_argument_group("drafting")
    draft.add_argument(
        "--drafter",
        default="ngram",
        metavar="NAME",
        help="none, ngram, suffix, lookahead, recycling, early-exit, draft-model, or a head that the package holds (default: %(default)s)",
    )
    draft.add_argument("--adaptive", action="store_true", help="guess only while that is faster than guessing nothing")
    draft.add_argument("--draft", metavar="MODEL", help="draft-model: a smaller model with the same vocabulary")
    draft.add_argument(
        "--exit-layer",
        type=int,
        metavar="N",
        help="early-exit: how many of the target's layers draft (default: a third)",
    )
    draft.add_argument(
        "--shape",
        metavar="NAME",
        help="early-exit, draft-model, heads: chain, dynamic, best-first or fixed (default: chain)",
    )
    draft.add_argument("--length", type=int, metavar="N", help="ngram, chain: guesses in a row (default: 10, 4)")
    draft.add_argument("--branches", type=int, metavar="N", help="ngram: places to copy from (default: 1)")
    draft.add_argument("--width", type=int, metavar="N", help="dynamic: children of a node (default: 4)")
    draft.add_argument("--depth", type=int, metavar="N", help="dynamic, best-first: levels (default: 5)")
    draft.add_argument(
        "--budget", type=int, metavar="N", help="dynamic, best-first: nodes sent to the target (default: 16)"
    )
    sampling = p.add_argument_group("sampling and stopping")
    sampling.add_argument(
        "--temperature", type=float, metavar="T", help="0 is greedy (default: 0, or 1 with a filter below)"
    )
    sampling.add_argument("--top-k", type=int, default=0, metavar="K", help="keep the K likeliest tokens")
    sampling.add_argument("--top-p", type=float, default=1.0, metavar="P", help="keep the likeliest tokens of mass P")
    sampling.add_argument(
        "--min-p", type=float, default=0.0, metavar="P", help="keep tokens P times as likely as the best"
    )
    sampling.add_argument(
        "--typical-p", type=float, default=1.0, metavar="P", help="keep the most typical tokens of mass P"
    )
    for name, what in (
        ("repetition", "divide the positive logits of all tokens in the text by X (default: 1)"),
        ("presence", "take X off the logits of tokens in the new text (default: 0)"),
        ("frequency", "take X off them once for each time they stand there (default: 0)"),
    ):
        sampling.add_argument(
            f"--{name}-penalty", type=float, default=float(name == "repetition"), metavar="X", help=what
        )
    sampling.add_argument(
        "--min-new-tokens", type=int, default=0, metavar="N", help="no stop token before N new ones (default: 0)"
    )
    sampling.add_argument(
        "--seed", type=int, default=0, metavar="N", help="names the randomness (default: %(default)s)"
    )
    sampling.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="default: %(default)s")
    sampling.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    )
    out = p.add_argument_group("output")
    out.add_argument("--plain", action="store_true", help="print the generated text alone")
    out.add_argument(
        "--compare",
        action="store_true",
        help="measure plain decoding, Hugging Face and drafters in one interleaved run",
    )
    out.add_argument(
        "--trace",
        metavar="FILE",
        help="write the run, with its text, to FILE.jsonl, .jsonl.gz or .parquet for `Replay`",
    )
    out.add_argument("--repeats", type=int, default=5, metavar="N", help="rounds of --compare (default: %(default)s)")
    out.add_argument("--json", metavar="FILE", help="--compare: write the figures, with a header, to FILE")
