"""burnish eval --bench: prompts, reading of replies and scores by hand, and agreement with lm-eval."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from small_benches import write_benches

from burnish.bench.choices import ARC, MMLU, TRUTHFULQA
from burnish.bench.harness import _request
from burnish.bench.kinds import Choices, Replies
from burnish.bench.likelihood import likelihoods, pair_of
from burnish.bench.replies import GSM8K, HUMANEVAL, IFEVAL, MATH500, MBPP
from burnish.bench.rows import rows_of
from burnish.bench.run import measure, until
from burnish.bench.table import BENCHES, named
from burnish.cli import main
from burnish.commands.loaded import load_policy
from burnish.core.step import Settings
from burnish.models.model import Model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benches(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tiny() -> Model:
    return load_policy("tiny", Settings(), "cpu")["policy"]


def scores(bench: object, rows: list[dict[str, object]], replies: list[str]) -> dict[str, list[float]]:
    kind = bench.measure  # type: ignore[attr-defined]
    assert isinstance(kind, Replies)
    return kind.judge(rows, replies)


# ------------------------------------------------------------------------------------------------------------ prompts


def test_prompts_are_those_of_the_harness(folder: Path, tiny: Model) -> None:
    rows = rows_of(GSM8K, str(folder))
    result = measure(tiny, GSM8K, rows, shots=1, most=1, chat=False, progress=lambda done: None)
    first, own = rows.examples[0], rows.asked[0]
    assert result.prompts == [
        f"Question: {first['question']}\nAnswer: {first['answer']}\n\nQuestion: {own['question']}\nAnswer:"
    ]
    subject = rows_of(MMLU, str(folder))
    asked = measure(tiny, MMLU, subject, shots=0, most=1, chat=False, progress=lambda done: None).prompts[0]
    assert asked.startswith("The following are multiple choice questions (with answers) about small sums.\n\n0+4=?\nA.")
    assert asked.endswith("\nAnswer:")


def test_examples_are_of_the_rows_own_subject_and_must_be_enough(folder: Path, tiny: Model) -> None:
    data = rows_of(MMLU, str(folder))
    with pytest.raises(ValueError, match="asked with 7 examples of 'small_sums', and its data have 5"):
        measure(tiny, MMLU, data, shots=7, most=1, chat=False, progress=lambda done: None)


def test_files_of_the_authors_are_read_like_those_of_the_hub() -> None:
    theirs = {
        "question": {"stem": "Why?", "choices": [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]},
        "answerKey": "2",
    }
    hub = {"question": "Why?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}
    assert isinstance(ARC.measure, Choices)
    for row in (theirs, hub):
        assert (ARC.ask(row), ARC.measure.of(row), ARC.measure.right(row)) == (
            "Question: Why?\nAnswer:",
            [" x", " y"],
            [1],
        )
    assert isinstance(TRUTHFULQA.measure, Choices)
    for targets in ({"a": 1, "b": 0, "c": 1}, {"choices": ["a", "b", "c"], "labels": [1, 0, 1]}):
        assert TRUTHFULQA.measure.right({"question": "?", "mc2_targets": targets}) == [0, 2]


# ------------------------------------------------------------------------------------------------------------ reading


def test_gsm8k_is_read_strictly_after_the_mark_and_flexibly_at_the_last_number() -> None:
    row = {"question": "", "answer": "9 times 2\n#### 1,018"}
    replies = ["#### 1018", "so $1,018.", "#### 7 and then 1018", "none", "#### 1,018. 5"]
    found = scores(GSM8K, [row] * 5, replies)
    assert found == {"strict": [1, 0, 0, 0, 1], "flexible": [1, 1, 1, 0, 0]}


def test_programs_are_run_against_their_tests(folder: Path) -> None:
    row = rows_of(HUMANEVAL, str(folder)).asked[0]
    replies = ["    return 2 * x\n", "    return x + 2\n", "    return x +\n", "    import os; os._exit(0)\n"]
    assert scores(HUMANEVAL, [dict(row)] * 4, replies) == {"pass@1": [1, 0, 0, 0]}
    short = dict(rows_of(MBPP, str(folder)).asked[0])
    replies = ["def add(a, b):\n    return a + b\n", "```python\ndef add(a, b):\n    return b + a\n```", "add = max"]
    assert scores(MBPP, [short] * 3, replies) == {"pass@1": [1, 1, 0]}


def test_mathematics_and_instructions_are_verified(folder: Path) -> None:
    rows = [dict(row) for row in rows_of(MATH500, str(folder)).asked]
    assert scores(MATH500, rows, ["It is $\\boxed{2}$.", "\\boxed{0.5}"])["acc"] == [1, 1]
    assert scores(MATH500, rows, ["\\boxed{3}", "one half of nothing"])["acc"] == [0, 0]
    rows = [dict(row) for row in rows_of(IFEVAL, str(folder)).asked]
    found = scores(IFEVAL, rows, ["Hello there", "too short"])
    assert found["prompt_strict"] == [1, 0]


def test_a_reply_ends_before_the_first_stop() -> None:
    assert until("a\n\nQuestion: b", ("Question:", "\n\n")) == "a" and until("abc", ("x",)) == "abc"


# --------------------------------------------------------------------------------------------------------- likelihood


def test_a_continuations_likelihood_is_the_chain_rule(tiny: Model) -> None:
    """log pi(c | x) = sum over t of log softmax(logits)[c_t], by one forward of transformers over the whole row."""
    from transformers import AutoModelForCausalLM

    from burnish.models.known_models import TINY

    pair = pair_of(tiny.chat, "12+35=", " 47", tiny.context)
    found = likelihoods(tiny, [pair, pair_of(tiny.chat, "1", "2", tiny.context)])[0]
    reference = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    with torch.no_grad():
        logp = reference(pair.tokens[None]).logits[0].double().log_softmax(-1)
    words = pair.tokens[-pair.said :]
    places = range(len(pair.tokens) - pair.said - 1, len(pair.tokens) - 1)
    expected = sum(float(logp[at, word]) for at, word in zip(places, words, strict=True))
    assert found.logp == pytest.approx(expected, abs=1e-4)
    assert found.greedy == all(int(logp[at].argmax()) == int(word) for at, word in zip(places, words, strict=True))


def test_a_space_before_the_answer_belongs_to_it(tiny: Model) -> None:
    a, b = pair_of(tiny.chat, "a ", "b", 99), pair_of(tiny.chat, "a", " b", 99)
    assert torch.equal(a.tokens, b.tokens) and a.said == b.said
    assert pair_of(tiny.chat, "xyz" * 9, " b", 5).tokens.shape == (5,)


def test_choices_are_scored_by_likelihood_length_and_share(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """log-probs -2, -3, -3 of answers of 1, 3 and 2 characters: acc takes the first; per character -2, -1, -1.5 the
    second; mc2 with the first and last true: (e^-2 + e^-3) / (e^-2 + 2 e^-3).
    """
    from burnish.bench import run
    from burnish.bench.likelihood import Likelihood
    from burnish.bench.rows import Rows

    monkeypatch.setattr(run, "likelihoods", lambda *a: [Likelihood(x, False) for x in (-2.0, -3.0, -3.0)])
    row = {"question": "?", "mc2_targets": {"a": 1, "bcd": 0, "ef": 1}}
    result = measure(tiny, TRUTHFULQA, Rows([row], []), shots=0, most=None, chat=False, progress=lambda done: None)
    mass = (math.exp(-2) + math.exp(-3)) / (math.exp(-2) + 2 * math.exp(-3))
    assert result.scores["acc"] == [1.0] and result.scores["acc_norm"] == [0.0]
    assert result.scores["mc2"] == [pytest.approx(mass)]


# -------------------------------------------------------------------------------------------------------- the command


def test_every_benchmark_runs_from_the_command_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows of each, and what was said is written; prompts longer than tiny's context lose their beginning."""
    own = [name for name in BENCHES if name != "truthfulqa_mc1"]
    words = ["eval", "tiny", "--bench", ",".join(own), "--bench-data", str(folder), "--shots", "1", "--tasks", "2"]
    assert main([*words, "--max-new-tokens", "8", "--json", "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)["benchmarks"]
    assert set(told) == set(own)
    for name in own:
        assert 0 <= told[name][BENCHES[name].metric]["mean"] <= 1
        lines = (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()
        assert len(lines) == told[name]["rows"] and json.loads(lines[0]).keys() == {"row", "prompt", "said", "scores"}


def test_contaminated_rows_are_counted_and_left_out_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in (folder / "arc_test.jsonl").read_text().splitlines()]
    seen = {"prompt": f"Question: {rows[1]['question']} Answer:", "answer": "1"}
    (tmp_path / "train.jsonl").write_text((json.dumps(seen) + "\n") * 3)
    words = ["eval", "tiny", "--bench", "arc", "--bench-data", str(folder), "--shots", "0", "--tasks", "4"]
    assert main([*words, "--trained-on", str(tmp_path / "train.jsonl")]) == 0
    assert "arc: 1 of 4 questions (25.0%) overlap" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bench", "gms8k"], "did you mean gsm8k?"),
        (["--bench", "gsm8k", "--bench-data", "nowhere"], "is not a folder"),
        (["--shots", "2"], "belongs to benchmarks"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "tiny", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_names_may_be_of_the_harness() -> None:
    assert named("gsm8k, lm-eval:arc_easy") == ["gsm8k", "lm-eval:arc_easy"]


def test_a_request_of_the_harness_keeps_its_settings(tiny: Model) -> None:
    """Sampling settings count where it samples; the prompt loses its beginning where the reply needs the room."""
    how = {"until": "\n", "max_gen_toks": 7, "do_sample": True, "temperature": 0.5, "top_p": 0.3}
    request, stop = _request(tiny, 3, "12+4=", how)
    assert (request.max_new, request.temperature, request.top_p) == (7, 0.5, 0.3)
    assert stop == request.stop == ("\n",)
    request, _ = _request(tiny, 3, "12+4=", {**how, "do_sample": False, "until": ["a", "b"]})
    assert request.temperature == 0.0 and request.stop == ("a", "b")
    long, _ = _request(tiny, 3, "1" * 5 * tiny.context, {"max_gen_toks": 5})
    assert len(long.prompt) == tiny.context - 5 and long.top_p == 1.0


@pytest.mark.extras
def test_results_agree_with_lm_eval_on_five_tasks(folder: Path, tiny: Model, tmp_path: Path) -> None:
    """The same rows, prompts and engine: our code and the harness's find the same numbers, not only near ones."""
    from burnish.bench.harness import run_harness

    pairs = {"gsm8k": "gsm8k", "arc": "arc_challenge", "mmlu": "mmlu_anatomy", "truthfulqa": "truthfulqa_mc2"}
    pairs |= {"truthfulqa_mc1": "truthfulqa_mc1"}
    data = tmp_path / "harness"
    data.mkdir()
    for ours, theirs in pairs.items():
        rows = rows_of(BENCHES[ours], str(folder if ours != "truthfulqa_mc1" else _renamed(folder, tmp_path))).asked
        text = "".join(json.dumps({**row, "subject": "anatomy"}) + "\n" for row in rows)
        (data / f"{theirs}.jsonl").write_text(text)
    found = run_harness(tiny, list(pairs.values()), data=str(data), shots=0, most=None, chat=False)["results"]
    for ours, theirs in pairs.items():
        bench = BENCHES[ours]
        rows = rows_of(bench, str(folder if ours != "truthfulqa_mc1" else _renamed(folder, tmp_path)))
        if ours == "mmlu":
            rows.asked[:] = [{**row, "subject": "anatomy"} for row in rows.asked]
        result = measure(tiny, bench, rows, shots=0, most=None, chat=False, progress=lambda done: None)
        metrics = {"gsm8k": {"strict": "exact_match,strict-match", "flexible": "exact_match,flexible-extract"}}
        each = metrics.get(ours, {bench.metric: f"{'acc' if bench.metric == 'mc2' else bench.metric},none"})
        for name, key in each.items():
            assert result.metric(name).mean == pytest.approx(found[theirs][key], abs=1e-6), (ours, name)


def _renamed(folder: Path, place: Path) -> Path:
    """A folder in which the rows of TruthfulQA are those of its first form."""
    (place / "first").mkdir(exist_ok=True)
    (place / "first" / "truthfulqa_mc1.jsonl").write_bytes((folder / "truthfulqa.jsonl").read_bytes())
    return place / "first"
