"""A judge in words:

tiny    runs/DIR/model    owner/name                a frozen model of the run, by name or directory
policy                                              the policy itself, with its present weights
model(runs/DIR/model, temperature=1, max_tokens=256)    policy(temperature=1)
endpoint(https://HOST/v1, NAME, calls=10000)        a model behind an OpenAI-compatible endpoint
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated

from burnish.core.call_syntax import bound, read_call, split_outside
from burnish.core.option import Option
from burnish.core.roles import frozen
from burnish.judges.cache import AnswerCache
from burnish.judges.endpoint import Endpoint
from burnish.judges.limits import Budget, Rate
from burnish.score.judges.judge import Judge
from burnish.score.judges.kept import check_keep
from burnish.score.judges.of_endpoint import EndpointJudge
from burnish.score.judges.of_model import ModelJudge
from burnish.util.paths import expanded, home

Temperature = Annotated[float, Option("Sampling temperature; 0 is greedy.", at_least=0)]
TopP = Annotated[float, Option("Share of probability that answers are sampled from.", above=0, at_most=1)]
Keep = Annotated[str, Option("A .jsonl file that gets every answer with its question, as a row for sft.")]
MaxTokens = Annotated[int, Option("The longest answer, in tokens.", at_least=1)]


def policy(*, temperature: Temperature = 0.0, top_p: TopP = 1.0, max_tokens: MaxTokens = 512, keep: Keep = "") -> Judge:
    """The policy itself, with its present weights."""
    return ModelJudge("policy", "policy", temperature, top_p, max_tokens, moves=True, keep=check_keep(keep))


def model(
    where: str,
    *,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    max_tokens: MaxTokens = 512,
    keep: Keep = "",
) -> Judge:
    """A frozen model of the run, by name or directory."""
    who = "judge_" + re.sub(r"[^a-z0-9]+", "_", where.lower()).strip("_")[-60:]
    return ModelJudge(who, where, temperature, top_p, max_tokens, {who: frozen(where)}, keep=check_keep(keep))


def endpoint(
    url: str,
    name: str,
    *,
    key: Annotated[str, Option("The environment variable that holds the API key.")] = "BURNISH_JUDGE_KEY",
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    max_tokens: MaxTokens = 512,
    seconds: Annotated[float, Option("Limit of one attempt.", above=0)] = 60.0,
    total: Annotated[float, Option("Limit of all attempts at one question.", above=0)] = 300.0,
    attempts: Annotated[int, Option("Attempts at one question.", at_least=1)] = 6,
    concurrency: Annotated[int, Option("Questions asked at the same time.", at_least=1, at_most=256)] = 8,
    rate: Annotated[float, Option("Calls a second.", above=0, unlimited=True)] = math.inf,
    calls: Annotated[int | None, Option("Calls after which the run stops.", at_least=1)] = None,
    tokens: Annotated[int | None, Option("Tokens after which the run stops.", at_least=1)] = None,
    cache: Annotated[str, Option("The folder of cached answers; off: none.")] = "",
    keep: Keep = "",
) -> Judge:
    """A model behind an OpenAI-compatible endpoint."""
    where = None if cache == "off" else expanded(cache) if cache else home() / "judgements"
    asked = Endpoint(
        url,
        key,
        seconds,
        total,
        attempts,
        concurrency,
        Budget(calls, tokens),
        Rate(None if math.isinf(rate) else rate),
    )
    return EndpointJudge(asked, name, AnswerCache(where), temperature, top_p, max_tokens, check_keep(keep))


KINDS: dict[str, Callable[..., Judge]] = {"policy": policy, "model": model, "endpoint": endpoint}


def read_judge(text: str) -> Judge:
    """The judge that a text names; raises ValueError for what is none."""
    text = str(text).strip()
    if not text:
        raise ValueError("judge is empty; name a model, policy, or endpoint(https://HOST/v1, MODEL)")
    if text.startswith(("http://", "https://")):
        raise ValueError("a judge behind an address is written endpoint(ADDRESS, MODEL), with the name of its model")
    call = read_call(text) if "(" in text or text == "policy" else None
    if call is None:
        return model(text)
    if call.name not in KINDS:
        raise ValueError(f"there is no kind of judge {call.name!r}; the kinds are {', '.join(KINDS)}")
    build = KINDS[call.name]
    return build(**bound(call, build))


def read_judges(text: str) -> list[Judge]:
    """Several judges, with a plus sign between them: tiny+endpoint(https://HOST/v1, NAME)."""
    found = [read_judge(piece) for piece in split_outside(text, "+")]
    if not found:
        raise ValueError("there is no judge; name at least one model, policy or endpoint(...)")
    return found
