"""Datasets with rows, values or bytes that are wrong: JSON lines, CSV, Parquet, conversations."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_kinds.case import HUGE, SMALL, Case, damaged

ROW = {"prompt": "2 + 2 =", "answer": "4", "completion": "4", "chosen": "4", "rejected": "5"}


def data_file(rng: random.Random, folder: Path) -> Case:
    """A dataset with a row, a value or a byte that is wrong."""
    wrong: Any = rng.choice(
        [
            None,
            1,
            1.5,
            [],
            {},
            True,
            "",
            "x" * 20_000,
            [{"role": 1}],
            [{"role": "user"}],
            {"a": {"b": 1}},
            "\ud800",
            "\0",
            -1e308,
            10**400,
        ]
    )
    column = rng.choice([*ROW, "messages", "label", "tests", "nosuch"])
    lines = [json.dumps(ROW) for _ in range(rng.randrange(0, 12))]
    lines.insert(rng.randrange(len(lines) + 1), json.dumps({**ROW, column: wrong}))
    if rng.random() < 0.5:
        junk = [
            "{",
            "[]",
            "1",
            "null",
            '"a"',
            "[" * 100_000,
            '{"a":' * 5000,
            '{"prompt": 1e999, "answer": NaN}',
            f'{{"prompt": {HUGE}{HUGE}}}',
            "\0",
            "\ufeff{}",
            "{'a': 1}",
        ]
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(junk))
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    ending = rng.choice(["jsonl", "json", "csv", "parquet", "jsonl.gz", "txt", "JSONL", "tsv", "arrow"])
    if ending.endswith("gz"):
        content = gzip.compress(content, mtime=0)
    if rng.random() < 0.4:
        content = damaged(rng, content)
    file = folder / f"data.{ending}"
    file.write_bytes(content)
    target = file if rng.random() < 0.9 else folder
    method = rng.choice(["sft", "grpo", "dpo", "kto"])
    return Case(
        "data", ["train", method, *SMALL, "--task", str(target), "--out", str(folder / "out")], str(content[:200])
    )


# ------------------------------------------------------------------------------------------------------- CSV, Parquet


def table(rng: random.Random, folder: Path) -> Case:
    """A CSV, TSV or Parquet file that is well-formed but odd, or damaged."""
    maker = rng.choice([_csv, _csv, _parquet, _parquet, _parquet])
    content, ending, what = maker(rng, folder)
    if rng.random() < 0.3:
        content, what = damaged(rng, content), f"{what}, damaged"
    file = folder / f"data.{ending}"
    file.write_bytes(content)
    method = rng.choice(["sft", "grpo", "dpo", "kto"])
    words = ["train", method, *SMALL, "--task", str(file), "--out", str(folder / "out")]
    if rng.random() < 0.2:
        other = folder / "more.jsonl"
        other.write_text(json.dumps(ROW) + "\n")
        words[words.index("--task") + 1] = f"{file}*{rng.choice(['0.5', '-1', 'x', '0', 'nan'])},{other}"
    return Case("tables", words, what)


def _csv(rng: random.Random, folder: Path) -> tuple[bytes, str, str]:
    odd = rng.choice(
        ["", "\0", "a,b", '"', "\n", "x" * 200_000, "é\ud800", "=1+1", "\ufeff", " ", "NULL", "[{", "\x1b[2J"]
    )
    heads = list(ROW)
    heads[rng.randrange(len(heads))] = rng.choice([odd, "prompt", "prompt", "label", "messages", "1"])
    lines = [",".join(heads)] if rng.random() < 0.8 else []
    for _ in range(rng.randrange(0, 6)):
        cells = list(ROW.values())
        cells[rng.randrange(len(cells))] = odd
        quoted = [f'"{cell}"' if rng.random() < 0.7 else cell for cell in cells]
        lines.append(",".join(quoted[: rng.choice([5, 5, 5, 3, 0])] + ["more"] * rng.choice([0, 0, 0, 2, 500])))
    text = rng.choice(["\n", "\r\n", "\r"]).join(lines)
    codes = rng.choice(["utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig"])
    content = text.encode(codes, "replace" if codes == "latin-1" else "surrogatepass")
    return content, rng.choice(["csv", "csv", "tsv", "csv.gz"]), f"{codes}: {text[:120]!r}"


def _parquet(rng: random.Random, folder: Path) -> tuple[bytes, str, str]:
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    size = rng.choice([0, 1, 3])
    words = pa.array(["2 + 2 ="] * size)
    odd: dict[str, Callable[[], Any]] = {
        "nulls": lambda: pa.nulls(size),
        "null texts": lambda: pa.array([None] * size, pa.string()),
        "bytes": lambda: pa.array([b"\xff\x00"] * size),
        "decimals": lambda: pa.array([decimal.Decimal("1.5")] * size),
        "times": lambda: pa.array([datetime.datetime(2001, 1, 1)] * size),
        "durations": lambda: pa.array([datetime.timedelta(1)] * size),
        "numbers": lambda: pa.array([float("nan")] * size),
        "big numbers": lambda: pa.array([2**63 - 1] * size),
        "truths": lambda: pa.array([True] * size),
        "lists": lambda: pa.array([[[1], []]] * size, pa.list_(pa.list_(pa.int64()))),
        "structs": lambda: pa.array([{"role": 1, "content": None}] * size),
        "maps": lambda: pa.array([[("a", 1)]] * size, pa.map_(pa.string(), pa.int64())),
        "chats": lambda: pa.array([[{"role": "user", "content": None}]] * size),
        "a dictionary": lambda: pa.array(["x"] * size).dictionary_encode(),
        "large texts": lambda: pa.array(["x" * 50_000] * size, pa.large_string()),
        "half numbers": lambda: pa.array([1.0] * size, pa.float32()).cast(pa.float16()),
    }
    kind, column = rng.choice(sorted(odd)), rng.choice([*ROW, "messages", "label", "\0", "", "é"])
    columns: dict[str, Any] = dict.fromkeys(ROW, words) | {column: odd[kind]()}
    made = pa.table(list(columns.values()), names=list(columns))
    if rng.random() < 0.1:
        made = made.append_column("prompt", words)  # a second column of this name
    elif rng.random() < 0.1:
        made = pa.table({})
    place = folder / "made.parquet"
    pq.write_table(made, place)
    content = place.read_bytes()
    place.unlink()
    return content, rng.choice(["parquet", "parquet", "parquet", "jsonl", "csv"]), f"{size} rows, {column!r} of {kind}"


# -------------------------------------------------------------------------------------------------------------- chats

TALK = [{"role": "user", "content": "2 + 2 ="}, {"role": "assistant", "content": "4"}]
PARTS: list[Any] = [
    None,
    "",
    1,
    True,
    [],
    {},
    [None],
    [[]],
    "\0",
    "\ud800",
    "<|end|>",
    "x" * 30_000,
    [{}],
    [{"type": []}],
]
PARTS += [[{"type": "text", "text": None}], [{"type": "image", "image": "x"}], [{"type": "text", "text": "a"}] * 500]
COLUMNS = [("messages", "sft"), ("conversations", "sft"), ("prompt", "grpo"), ("chosen", "dpo"), ("messages", "grpo")]
ROLES: list[Any] = [None, "", 1, [], {}, "USER", "narrator", "<|end|>", "a\nb", "tool", "system", "\ud800"]
CALLS: list[Any] = [1, "x", {}, [], [1], [{}], [{"function": None}], [{"function": {"name": 1}}]]
CALLS += [[{"function": {"name": "f", "arguments": a}}] for a in ("{", "[", None, 1, [1], "{" * 5000, {"a": "\0"})]


def chat(rng: random.Random, folder: Path) -> Case:
    """Conversations with a message that is wrong, beside sound ones."""
    talk: list[Any] = [dict(message) for message in TALK * rng.choice([1, 1, 2, 20])]
    at = rng.randrange(len(talk))
    how = rng.randrange(7)
    if how == 0:
        talk[at]["content"] = rng.choice(PARTS)
    elif how == 1:
        talk[at]["role"] = rng.choice(ROLES)
    elif how == 2:
        talk[at]["tool_calls"] = rng.choice(CALLS)
    elif how == 3:
        talk[at] = rng.choice([None, 1, "x", [], {}, {"content": "x"}, {"role": "user"}, {"from": "human"}])
    elif how == 4:
        talk = rng.choice([[], [talk[1]], talk[::-1], [*talk, None], [talk], talk[:1] * 3, [[]], "x", 5, {"a": talk}])
    elif how == 5:
        talk[at] |= {rng.choice(["name", "tool_call_id", "weight", "train", "x"]): rng.choice(PARTS)}
    column, method = rng.choice(COLUMNS)
    row: dict[str, Any] = {
        column: talk,
        **({"rejected": [*TALK[:1], {**TALK[1], "content": "5"}]} if method == "dpo" else {}),
    }
    if how == 6 or rng.random() < 0.3:
        row[rng.choice(["tools", "completion", "rejected", "label", "system"])] = rng.choice([*PARTS, *CALLS, TALK])
    method = rng.choice([method] * 9 + ["kto", "reward_model", "dpo"])
    lines = [json.dumps(one) for one in ({**row, column: TALK}, row)]
    file = folder / "chats.jsonl"
    file.write_bytes("\n".join(lines[rng.randrange(2) :]).encode("utf-8", "surrogatepass"))
    return Case(
        "chats",
        ["train", method, *SMALL, "--task", str(file), "--out", str(folder / "out")],
        f"{method}: {lines[1][:300]}",
    )
