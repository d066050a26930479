"""`text`: a running service writes the text that drafts are trained on.

Each prompt is continued once at each temperature, with a seed that follows from
--seed, the prompt's id and the temperature. The texts stand in the order of the
prompts, whichever is ready first: the same command writes the same corpus. Only
--minutes ends it where the clock says. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import math
import pathlib
import sys
import time
from typing import Iterable, List, Optional, Tuple

from . import TrainingError
from .corpus import CorpusWriter, Origin, Text
from .progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", default="127.0.0.1:50050",
                        help="of the coordinator (default %(default)s)")
    parser.add_argument("--prompts", type=pathlib.Path, action="append", required=True,
                        help="JSON lines with `prompt` (to continue) or `text` (a "
                             "document to use as it is), perhaps `id`; repeatable")
    parser.add_argument("--never", type=pathlib.Path, action="append", default=[],
                        help="test prompts, JSON lines with `prompt` or `text`: a prompt "
                             "or document that holds one is an error; repeatable")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the corpus")
    parser.add_argument("--temperatures", default="0,0.8,1",
                        help="each prompt is continued at each (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=200,
                        help="of a continuation (default %(default)s)")
    parser.add_argument("--streams", type=int, default=64,
                        help="requests at once (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    parser.add_argument("--limit", type=int, help="use only the first N prompts")
    parser.add_argument("--minutes", type=float,
                        help="begin no text after so many: how many texts that are "
                             "depends on the machine (default: write all)")


def read_prompts(paths: Iterable[pathlib.Path]) -> List[dict]:
    """The lines of prompts files, each with `id` and one of `prompt` and `text`.
    TrainingError: a line has neither, or an empty one."""
    prompts = []
    for path in paths:
        try:
            # Not splitlines(): JSON may hold other ends of lines.
            lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        except OSError as error:
            raise TrainingError(f"{path}: {error.strerror}") from None
        for number, line in enumerate(lines, 1):
            try:
                prompts.append(_prompt(json.loads(line), f"{path.stem}-{number}"))
            except ValueError as error:
                raise TrainingError(f"{path}: line {number}: {error}") from None
    return prompts


def _prompt(fields, name: str) -> dict:
    """`name`: of a line that has no `id`. ValueError: it is not a prompt."""
    kinds = [kind for kind in ("prompt", "text")
             if isinstance(fields, dict) and kind in fields]
    if not kinds:
        raise ValueError("neither `prompt` nor `text` is there")
    text = fields[kinds[0]]
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"`{kinds[0]}` is not a text, or an empty one")
    return {"id": str(fields.get("id", name)), kinds[0]: text}


def _words(line: dict) -> str:
    return line["prompt"] if "prompt" in line else line["text"]


def refuse_test_prompts(prompts: List[dict], never: List[dict]) -> None:
    """TrainingError: a line holds one of the test prompts."""
    for line in prompts:
        for test in never:
            if _words(test).strip() in _words(line):
                raise TrainingError(f"prompt {line['id']} holds the test prompt "
                                    f"{test['id']}: a draft must not be trained on it")


def seed_of(base: int, name: str) -> int:
    digest = hashlib.sha256(f"{base}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def parse_temperatures(text: str) -> List[float]:
    try:
        temperatures = [float(part) for part in text.split(",")]
    except ValueError:
        raise TrainingError(f"--temperatures {text}: not numbers") from None
    if any(not 0 <= t <= 2 for t in temperatures):
        raise TrainingError(f"--temperatures {text}: not all from 0 to 2")
    return temperatures


def jobs_of(prompts: List[dict], temperatures: List[float]) -> List[Tuple[str, dict, float]]:
    """(id of the text, line, temperature); a document's temperature is -1."""
    jobs = []
    for line in prompts:
        if "text" in line:
            jobs.append((line["id"], line, -1.0))
        else:
            jobs += [(f"{line['id']}@{t:g}", line, t) for t in temperatures]
    return jobs


def run(arguments: argparse.Namespace) -> None:
    try:
        import nacre
    except ImportError as error:
        raise TrainingError(f"{error}: pip install ./clients/python") from None
    prompts = read_prompts(arguments.prompts)[:arguments.limit]
    refuse_test_prompts(prompts, read_prompts(arguments.never))
    jobs = jobs_of(prompts, parse_temperatures(arguments.temperatures))

    try:
        connected = nacre.Client(arguments.address)
    except ValueError as error:
        raise TrainingError(f"--address {arguments.address!r}: {error}") from None
    with connected as client:
        try:
            model = client.model(timeout=30)
            writer = CorpusWriter(arguments.out, Origin(
                model.fingerprint, model.numerics_id, model.vocab_size))
            missing = [job for job in jobs if job[0] not in writer.known]
            _write_all(client, arguments, missing, len(jobs), writer)
        except nacre.StatusError as error:
            raise TrainingError(f"{arguments.address}: {error}") from None


def _write_all(client, arguments, missing, total: int, writer: CorpusWriter) -> None:
    end = math.inf
    if arguments.minutes is not None:
        end = time.monotonic() + 60 * arguments.minutes

    def write(job: Tuple[str, dict, float]) -> Optional[Text]:
        name, line, temperature = job
        if time.monotonic() > end:
            return None
        if temperature < 0:
            return Text(name, (), tuple(client.tokenize(line["text"])))
        prompt = client.tokenize(line["prompt"])
        seed = seed_of(arguments.seed, name)
        completion = client.generate(
            prompt, max_tokens=arguments.max_tokens, temperature=temperature,
            seed=seed, method="ar")
        return Text(name, tuple(prompt), completion.token_ids, temperature, seed)

    progress = Progress("text", total, total - len(missing))
    done, tokens = total - len(missing), 0
    pool = concurrent.futures.ThreadPoolExecutor(arguments.streams)
    try:
        futures = [pool.submit(write, job) for job in missing]
        for future in futures:
            text = future.result()
            if text is None:
                # What others began still is left out: it would leave a gap.
                break
            writer.add(text)
            done, tokens = done + 1, tokens + len(text.token_ids)
            progress.at(done, f"{tokens} tokens")
    finally:
        pool.shutdown(cancel_futures=True)
        writer.close()
        progress.close()
    print(f"{arguments.out}: {done} texts, {tokens} tokens written now", file=sys.stderr)
