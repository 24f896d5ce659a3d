"""Read a claim file; a mistake is a ValueError of one sentence that names the place."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from burnish.compare.budget import Budget
from burnish.compare.budget import parse as parse_budget
from burnish.compare.plan import candidate
from burnish.compare.probes import read_probe
from burnish.studies.fields import Fields
from burnish.studies.rule_words import read_level, read_rule
from burnish.studies.rules import VERDICTS
from burnish.studies.study import Arm, Claim, Design, Source, Study
from burnish.util.json_types import Json
from burnish.util.plainfile import read_yaml

BOX = Path(__file__).parent / "box"
KEYS = (
    *("paper", "about", "quoted", "departures", "model", "options", "arms", "design", "quick", "claims", "tune"),
    *("record", "probes", "prepare", "untested", "methods"),
)
_DESIGN = ("tasks", "seeds", "budget", "held_out", "replies", "points", "arms", "dev_seeds")
_ARM = ("method", "about", "learns", "budget", "tune")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
REFERENCE = re.compile(r"\{([A-Za-z0-9][A-Za-z0-9_.+-]*)\}")


def names() -> list[str]:
    """The claim files in the box, by the id of their paper."""
    return sorted(file.stem for file in BOX.glob("*.yaml"))


def file_of(name: str) -> Path:
    """The claim file of a name in the box, or a user's own by its path."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if name in names():
        return BOX / f"{name}.yaml"
    near = difflib.get_close_matches(name, names(), 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else "burnish study list names them."
    raise ValueError(f"there is no study {name!r}; {hint} A claim file of your own ends in .yaml")


def read_study(name: str) -> Study:
    """The study of a name or a path."""
    file = file_of(name)
    if not file.is_file():
        raise ValueError(f"there is no claim file {str(file)!r}; burnish study list names those in the box")
    return parse_study(read_yaml(file), str(file) if file.parent != BOX else f"study {file.stem}", file.stem)


def parse_study(stored: object, where: str, name: str) -> Study:
    """The study of a file's contents."""
    fields = Fields.of(where, stored, KEYS)
    paper = Fields.of(f"{where}: `paper`", fields.values.get("paper"), ("id", "arxiv", "title"))
    arms = _arms(fields.values.get("arms"), where)
    full = _design(fields.values.get("design"), f"{where}: `design`", None, arms)
    study = Study(
        name=name,
        source=Source(paper.text("id"), paper.text("arxiv", ""), paper.text("title")),
        about=fields.text("about"),
        quoted=fields.texts("quoted"),
        departures=fields.texts("departures"),
        model=fields.text("model", "tiny"),
        options={
            key.replace("-", "_"): x for key, x in Fields.of(where, fields.values.get("options") or {}).values.items()
        },
        arms=arms,
        full=full,
        quick=_design(fields.values.get("quick") or {}, f"{where}: `quick`", full, arms),
        claims=_claims(fields.values.get("claims"), where, arms),
        sha=hashlib.sha256(json.dumps(stored, sort_keys=True, default=str).encode()).hexdigest()[:12],
        tune=_rates(fields),
        record=fields.texts("record"),
        probes=_probes(fields),
        prepare=_prepare(fields),
        untested=fields.texts("untested"),
        methods=fields.texts("methods"),
    )
    _check_references(study, where)
    return study


def _options(fields: Fields) -> dict[str, object]:
    options = Fields.of(f"{fields.where}: `options`", fields.values.get("options") or {})
    return {key.replace("-", "_"): value for key, value in options.values.items()}


def _prepare(fields: Fields) -> Mapping[str, Json]:
    stages = fields.values.get("prepare") or {}
    stored: Mapping[str, Json] = json.loads(json.dumps(Fields.of(f"{fields.where}: `prepare`", stages).values))
    return stored


def _rates(fields: Fields) -> tuple[float, ...]:
    listed = fields.values.get("tune") or []
    if not isinstance(listed, list) or not all(isinstance(x, int | float) and x > 0 for x in listed):
        raise ValueError(f"{fields.where}: `tune` should be a list of learning rates, such as [1e-4, 3e-4, 1.0e-3]")
    return tuple(float(x) for x in listed)


def _budget(fields: Fields) -> Budget:
    try:
        return parse_budget(fields.text("budget"))
    except ValueError as error:
        raise ValueError(f"{fields.where}: {error}") from None


def _probes(fields: Fields) -> tuple[str, ...]:
    for words in fields.texts("probes"):
        try:
            read_probe(words)
        except ValueError as error:
            raise ValueError(f"{fields.where}: {error}") from None
    return fields.texts("probes")


def _arms(stored: object, where: str) -> dict[str, Arm]:
    fields = Fields.of(f"{where}: `arms`", stored)
    if not fields.values:
        raise ValueError(f"{where} has no arms; `arms:` needs lines such as `clean: grpo(beta=0)`")
    for name in fields.values:
        if not NAME.fullmatch(name):
            raise ValueError(f"{where}: an arm cannot be called {name!r}; use letters, digits, - _ . and +")
    return {name: _arm(name, value, where) for name, value in fields.values.items()}


def _arm(name: str, stored: object, where: str) -> Arm:
    where = f"{where}: arm {name!r}"
    if isinstance(stored, str):
        one = candidate(stored)
        return Arm(name, one.method, one.flags)
    fields = Fields.of(where, stored)
    flags = {key.replace("-", "_"): value for key, value in fields.values.items() if key not in _ARM}
    one = candidate(fields.text("method"))
    for key, value in flags.items():
        if isinstance(value, Mapping | list):
            raise ValueError(f"{where}: the flag {key!r} should have one value, as on the command line")
    budget = _budget(fields) if "budget" in fields.values else None
    about, learns, tune = fields.text("about", ""), fields.text("learns", ""), fields.yes("tune", True)
    return Arm(name, one.method, {**one.flags, **flags}, about, learns, budget, tune)


def _design(stored: object, where: str, base: Design | None, arms: Mapping[str, Arm]) -> Design:
    fields = Fields.of(where, stored, _DESIGN)
    if base is None:
        base = Design(fields.texts("tasks"), fields.whole("seeds", 8), _budget(fields))
        if not base.on:
            raise ValueError(f"{where} needs `tasks:`, a list of tasks such as [add:3]")
    chosen = fields.texts("arms", base.arms)
    for name in chosen:
        _known(name, arms, where)
    return replace(
        base,
        on=fields.texts("tasks", base.on),
        seeds=fields.whole("seeds", base.seeds),
        budget=_budget(fields) if "budget" in fields.values else base.budget,
        tasks=fields.whole("held_out", base.tasks, 2),
        replies=fields.whole("replies", base.replies),
        points=fields.whole("points", base.points),
        arms=chosen,
        dev_seeds=fields.whole("dev_seeds", base.dev_seeds),
    )


def _claims(stored: object, where: str, arms: Mapping[str, Arm]) -> tuple[Claim, ...]:
    fields = Fields.of(f"{where}: `claims`", stored)
    if not fields.values:
        raise ValueError(f"{where} has no claims; `claims:` needs lines `NAME:` with `claim:` and `rule:` below it")
    claims = []
    for name, value in fields.values.items():
        place = f"{where}: claim {name!r}"
        one = Fields.of(place, value, ("claim", "rule", "checks", "otherwise", "change", "guess"))
        listed = one.values.get("checks") or []
        if not isinstance(listed, list):
            raise ValueError(f"{place}: `checks` should be a list of measures with their bounds")
        checks = tuple(read_level(check, f"{place}: a check") for check in listed)
        claim = Claim(
            name,
            one.text("claim"),
            read_rule(one.values.get("rule"), place),
            checks,
            one.text("otherwise", "undecided"),
            one.text("change", ""),
            one.text("guess", ""),
        )
        if claim.otherwise not in VERDICTS[2:]:
            raise ValueError(
                f"{place}: `otherwise` is {claim.otherwise!r}; it must be one of {', '.join(VERDICTS[2:])}"
            )
        for arm in (*claim.rule.arms, *(check.arm for check in checks)):
            _known(arm, arms, place)
        claims.append(claim)
    return tuple(claims)


def _known(name: str, arms: Mapping[str, Arm], where: str) -> None:
    if name not in arms:
        near = difflib.get_close_matches(name, arms, 1, 0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"the arms are {', '.join(arms)}"
        raise ValueError(f"{where} names an arm {name!r} that there is not; {hint}")


def references(arm: Arm) -> tuple[str, ...]:
    """The names in braces in an arm's flags and data."""
    texts = [arm.learns, *(value for value in arm.flags.values() if isinstance(value, str))]
    return tuple(dict.fromkeys(name for text in texts for name in REFERENCE.findall(text)))


def _check_references(study: Study, where: str) -> None:
    """What an arm refers to is an earlier arm or a stage of `prepare`."""
    order = list(study.arms)
    if twice := [name for name in order if name in study.prepare]:
        raise ValueError(f"{where} has an arm and a stage of `prepare` called {twice[0]!r}; give one another name")
    for place, arm in enumerate(study.arms.values()):
        for name in references(arm):
            if name not in order[:place] and name not in study.prepare:
                raise ValueError(
                    f"{where}: arm {arm.name!r} refers to {{{name}}}, which is neither an arm above it nor a stage of "
                    "`prepare`"
                )
