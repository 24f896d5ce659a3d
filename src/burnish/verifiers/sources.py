"""Which verifier a row is for, by its columns: `verifier`, `data_source`, `kind`, or what else it has (Guru)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated

from burnish import papers
from burnish.core.call_syntax import read_call
from burnish.core.option import Option
from burnish.verifiers.final_answer import number
from burnish.verifiers.table import VERIFIERS, Row, verifier

Choose = Callable[[Row], str]  # the call of the verifier of a row
CODE = "code"  # stands for the verifier of programs by their tests

_SOURCES = {  # call -> data sources, each the beginning of a name up to a character that is no letter or digit
    "math": "math gsm8k aime aime24 aime25 amc amc23 olympiad olympiadbench minerva deepscaler numina numinamath dapo "
    "geometry3k omni deepmath bigmath orz skywork math500 polaris hendrycks stem stem__web",
    "choice": "mmlu gpqa arc arc_easy arc_challenge hellaswag medqa medmcqa openbookqa commonsense commonsenseqa "
    "truthfulqa race logiqa supergpqa stem__gpqa stem__supergpqa choice",
    "exact_match": "nq triviaqa popqa hotpotqa 2wikimultihopqa musique bamboogle squad searchr1 logic__graph tabfact "
    "graph_logical web_questions text",
    "answer_list": "table hitab multihier wtq wikitq finqa wikitablequestions list",
    "zebra": "zebra logic__zebra zebra_puzzle",
    "ordering": "logic__ordering ordering_puzzle",
    "grid": "arcagi arcagi1 arcagi2 arc_agi barc logic__arcagi logic__arcagi1 logic__arcagi2 logic__barc grid "
    "simulation__arcagi simulation__arcagi1 simulation__barc",
    "codeio": "codeio simulation__codeio",
    "json_equal": "simulation",
    "instructions": "ifeval ood__ifeval ifbench ood__ifbench instructions instruction_following tulu_ifeval",
    "tool_calls": "toolrl bfcl xlam toolace tool tools rlla",
    "swe_rl": "swe swe_rl swegym swe_gym swe_bench patch",
    "logical_equivalence": "fol folio malls logicllama logic_formula",
    "world_state": "bytesized32 world",
    "rouge": "fetaqa summarization xsum cnn_dailymail",
    "bleu": "wmt wmt14 wmt16 wmt19 flores translation",
    "lean": "lean minif2f lean_workbook proofnet putnambench",
    CODE: "code codegen apps taco codecontests code_contests codeforces livecodebench lcb humaneval mbpp leetcode "
    "leetcode2k primeintellect kodcode acecode acecoder hardtests opencoder",
}
_NOT_HERE = {  # beginning of a data source -> why no verifier here is for it
    "simulation__cruxeval": "their replies are assertions that are run as they are, so that `assert True` is right",
    "cruxeval": "their replies are assertions that are run as they are, so that `assert True` is right",
}
SOURCES = {source: call for call, sources in _SOURCES.items() for source in sources.split()}
Mapped = Annotated[dict[str, str] | None, Option("Data sources of your own: {'my_data': 'f1(minimum=0.8)'}.")]


@verifier(
    papers.GURU,
    summary="The verifier for the data source of each row (Guru); an unknown source is an error.",
    when="Rows of several domains have a column `data_source` or `kind`.",
    runs="rows",
)
def by_source(mapping: Mapped = None) -> Choose:
    """Chooses by `data_source`, else `kind`: the longest known beginning of its name, without regard to case.

    A beginning ends where the name does or before a character that is no letter or digit, also after the last "/":
    openai/gsm8k, math__merged, logic__zebra_puzzle_1. `mapping` comes before the known sources. Rows of code go to the
    verifier of programs, which runs their tests. The answer of a row may stand in verl's `reward_model`
    ({"ground_truth": ...}). All of Guru's verifiers (arXiv 2506.14965) are binary but for zebra puzzles. Departure: its
    science questions (stem__web) are compared by `math`, where the paper asks a model of 1.5B parameters.
    """
    calls = _known(mapping)

    def choose(row: Row) -> str:
        for column in ("data_source", "kind"):
            if row.get(column):
                return _of_source(str(row[column]), calls, column)
        raise ValueError(
            "by_source needs a column 'data_source' or 'kind', which a row does not have; use --reward auto, or name "
            "the column with --columns data_source=NAME"
        )

    return choose


@verifier(
    papers.GURU,
    summary="The verifier for each row: by its columns verifier, data_source or kind, else by what it has.",
    when="Rows of several kinds, or of verl, with nothing else to say.",
    runs="rows",
)
def auto(mapping: Mapped = None) -> Choose:
    """Chooses by the row's `verifier` (a name with options), else as by_source, else by what the row has.

    Without such a column: `choices` or `options` -> choice; instruction_id_list or constraints -> instructions; files
    with patch or new_files -> swe_rl; sources with supports or facts -> citations; tests -> the verifier of programs;
    state -> world_state; schema without an answer -> json_format; of the answer: a list of calls -> tool_calls, a list
    -> answer_list, an object -> json_equal, a number or mathematics -> math, other text -> exact_match.
    An unknown source is an error that names the known ones.
    """
    calls = _known(mapping)

    def choose(row: Row) -> str:
        if row.get("verifier"):
            return _named(str(row["verifier"]))
        for column in ("data_source", "kind"):
            if row.get(column):
                return _of_source(str(row[column]), calls, column)
        return by_columns(row)

    return choose


def by_columns(row: Row) -> str:
    """The call of the verifier for what a row has."""

    def has(*names: str) -> bool:
        return any(row.get(name) is not None for name in names)

    rules = {
        "choice": has("choices", "options") and has("answer"),
        "instructions": has("instruction_id_list", "constraints"),
        "swe_rl": has("files") and has("patch", "new_files"),
        "citations": has("sources") and has("supports", "facts"),
        "lean": has("formal_statement"),
        CODE: has("test_list", "tests", "test_cases", "unit_tests", "test", "input_output"),
        "world_state": has("state") and has("answer"),
        "json_format": has("schema") and not has("answer"),
    }
    for call, holds in rules.items():
        if holds:
            return _code() if call == CODE else call
    if not has("answer"):
        columns = ", ".join(sorted(name for name, value in row.items() if value is not None))
        raise ValueError(
            f"auto cannot tell how to verify a row with the columns {columns}; give it a column 'verifier' (a name as "
            "in --reward), 'data_source' or 'answer'"
        )
    return _by_answer(row["answer"])


def _by_answer(answer: object) -> str:
    if isinstance(answer, list | tuple):
        calls = bool(answer) and all(isinstance(one, Mapping) and {"name", "function"} & one.keys() for one in answer)
        return "tool_calls" if calls else "answer_list"
    if isinstance(answer, Mapping):
        return "json_equal"
    text = str(answer)
    mathematical = number(text) is not None or re.search(r"\\[a-z]+|[0-9]\s*[\^/+*=]|[\^_]\{", text)
    return "math" if mathematical else "exact_match"


def _named(text: str) -> str:
    """A verifier that a row of the data names; never a file, because data must not choose what code runs."""
    call = read_call(text)
    if call is None or call.name not in VERIFIERS or VERIFIERS[call.name].runs == "rows":
        names = sorted(name for name, entry in VERIFIERS.items() if entry.runs != "rows")
        raise ValueError(f"the column 'verifier' of a row is {text[:60]!r}; it must be one of {', '.join(names)}")
    return text


def _of_source(source: str, calls: Mapping[str, str], column: str) -> str:
    whole = source.strip().casefold()
    for name in dict.fromkeys((whole, whole.rpartition("/")[2])):
        if why := next((why for key, why in _NOT_HERE.items() if name.startswith(key) and key not in calls), ""):
            raise ValueError(f"no verifier is for the {column} {source[:60]!r}: {why}; leave these rows out")
        matching = [key for key in calls if name.startswith(key) and not name[len(key) : len(key) + 1].isalnum()]
        if matching:
            call = calls[max(matching, key=len)]
            return _code() if call == CODE else call
    raise ValueError(
        f"the {column} {source[:60]!r} is unknown; known are {', '.join(sorted(calls))}; say which verifier it is for: "
        f"--reward \"auto({{'{source[:60]}': 'math'}})\""
    )


def _code() -> str:
    """The verifier of programs: the first of kind "code" in the table."""
    names = [name for name, entry in VERIFIERS.items() if CODE in entry.kinds]
    if not names:
        raise ValueError("a row is for a verifier of programs, and none is installed; leave out the rows of code")
    return min(names, key=lambda name: (name != "unit_tests", name))


def _known(mapping: dict[str, str] | None) -> dict[str, str]:
    if mapping is not None and not (
        isinstance(mapping, dict) and all(isinstance(x, str) for pair in mapping.items() for x in pair)
    ):
        raise ValueError(f"a mapping is {{'source': 'verifier'}}, not {mapping!r:.60}")
    own = {key.casefold(): call for key, call in (mapping or {}).items()}
    for call in own.values():
        name = read_call(call)
        if name is not None and call != CODE and name.name not in VERIFIERS:
            raise ValueError(f"there is no verifier {name.name!r} for a data source; burnish rewards lists them")
    return SOURCES | own
