"""`bandit`: pull arms and learn which pays best. An environment of several turns (BanditBench, arXiv 2410.06238)."""

from __future__ import annotations

import random
import re
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, ClassVar

from burnish.core.seeds import rng
from burnish.core.splits import check_level, in_split
from burnish.core.task import Message, Task, Verdict
from burnish.envs.bandit_algorithms import LinUCB, Terms, best_arm, thompson, ucb, worth
from burnish.envs.protocol import Outcome
from burnish.verifiers.answer_line import LONGEST_REPLY

_SHAPE = {1: (2, 8, 0.6), 2: (3, 12, 0.5), 3: (5, 16, 0.5), 4: (10, 30, 0.2)}  # arms, pulls, gap
KINDS = ("bernoulli", "gaussian", "contextual")
GUIDES = ("none", "ucb", "linucb", "thompson")
_SIZE = 3  # numbers of a context
_NOISE = {"gaussian": 0.3, "contextual": 0.1}
_NUMBER = re.compile(r"(?<![\d.-])\d{1,4}(?![\d.]*\d)")


@dataclass(frozen=True)
class Arms:
    """One bandit: the means of its arms (contextual: their weights), its pulls, and the seed of its rewards."""

    kind: str
    arms: tuple[tuple[float, ...], ...]
    pulls: int
    tape: int

    def context(self, t: int) -> tuple[float, ...]:
        """What is known before pull t: (1,) without contexts."""
        if self.kind != "contextual":
            return (1.0,)
        dice = rng("bandit context", self.tape, t)
        return tuple(round(dice.random(), 2) for _ in range(_SIZE))

    def means(self, t: int) -> list[float]:
        """The expected reward of each arm at pull t."""
        x = self.context(t)
        return [sum(w * one for w, one in zip(own, x, strict=True)) for own in self.arms]

    def reward(self, arm: int, t: int, before: int) -> float:
        """What an arm pays at pull t, after it was pulled `before` times: the same in every episode."""
        mean = self.means(t)[arm]
        dice = rng("bandit reward", self.tape, arm, before if self.kind != "contextual" else t)
        return (
            float(dice.random() < mean) if self.kind == "bernoulli" else round(dice.gauss(mean, _NOISE[self.kind]), 2)
        )


class Bandit:
    """The environment of one `Arms`. A pull earns its reward divided by the number of pulls, so that an episode earns
    the mean reward. info["metrics"] has the regret so far: the sum over pulls of the best mean minus that of the arm.

    guide: what the observations say of each arm: nothing, or the terms of an algorithm
    """

    def __init__(self, arms: Arms, guide: str = "none") -> None:
        self.arms, self.guide = arms, guide
        self.reset()

    def reset(self) -> str:
        count = len(self.arms.arms)
        self.counts, self.sums, self.regret, self.made = [0] * count, [0.0] * count, 0.0, 0
        self.linear = LinUCB(count, len(self.arms.context(0)))
        return self._with_state(f"{count} arms, 1 to {count}. {self.arms.pulls} pulls. Earn the most.")

    def step(self, action: str) -> Outcome:
        """One pull: the arm is the last whole number in the action. Text without an arm wastes a pull."""
        if self.made >= self.arms.pulls:
            raise ValueError("all pulls are made; call reset() to begin again")
        numbers = _NUMBER.findall(action[-LONGEST_REPLY:])
        arm = int(numbers[-1]) - 1 if numbers else -1
        reward, said = self.pull(arm) if 0 <= arm < len(self.counts) else self._wasted()
        over = self.made >= self.arms.pulls
        metrics = {"regret": self.regret}
        seen = said if over else self._with_state(said)
        return Outcome(seen, reward / self.arms.pulls, terminated=over, info={"metrics": metrics})

    def pull(self, arm: int) -> tuple[float, str]:
        """The reward of an arm, and what is said of it."""
        means, x = self.arms.means(self.made), self.arms.context(self.made)
        reward = self.arms.reward(arm, self.made, self.counts[arm])
        self.regret += max(means) - means[arm]
        self.linear.saw(arm, x, reward)
        self.counts[arm] += 1
        self.sums[arm] += reward
        self.made += 1
        return reward, f"reward {reward:g}"

    def _wasted(self) -> tuple[float, str]:
        self.regret += max(self.arms.means(self.made))
        self.made += 1
        return 0.0, f"say an arm, 1 to {len(self.counts)}"

    def key(self) -> str:
        """The state: pulls and sums of every arm."""
        return f"{self.made}: " + " ".join(f"{n}/{total:g}" for n, total in zip(self.counts, self.sums, strict=True))

    def terms(self) -> list[Terms]:
        """Value and bonus of each arm: UCB's, or LinUCB's for contexts."""
        if self.arms.kind == "contextual":
            return self.linear.terms(self.arms.context(self.made))
        return ucb(self.counts, self.sums)

    def _with_state(self, said: str) -> str:
        """What was said, with the next context, and what the guide says of each arm."""
        lines = [said]
        if self.arms.kind == "contextual":
            lines.append("context " + " ".join(f"{one:g}" for one in self.arms.context(self.made)))
        if self.guide == "thompson":
            drawn = thompson(self.counts, self.sums, rng("bandit guide", self.arms.tape, self.made))
            lines += [f"{i + 1}: sample {value:.2f}" for i, value in enumerate(drawn)]
        elif self.guide != "none":
            lines += [f"{i + 1}: value {value:.2f} bonus {bonus:.2f}" for i, (value, bonus) in enumerate(self.terms())]
        return "\n".join(lines)


class BanditTask:
    """Arms of which one is better than the others by a gap: 2, 3, 5 or 10 arms with 8, 12, 16 or 30 pulls by level.

    kind   bernoulli (rewards 0 and 1), gaussian, or contextual: each pull has a context, in which rewards are linear
    guide  what the observations say of each arm: none, ucb, linucb (for contexts) or thompson (for bernoulli)
    """

    name: ClassVar[str] = "bandit"
    summary: ClassVar[str] = "pull arms and learn which pays best (several turns)"
    gives: ClassVar[frozenset[str]] = frozenset({"env", "episode", "oracle"})
    levels: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)

    def __init__(self, level: int = 2, seed: int = 0, kind: str = "bernoulli", guide: str = "none") -> None:
        self.level = check_level(self.name, level, self.levels)
        self.seed, self.kind, self.guide = seed, kind, guide or "none"
        for what, value, known in (("kind", kind, KINDS), ("guide", self.guide, GUIDES)):
            if value not in known:
                raise ValueError(f"task 'bandit' has no {what} {value!r}; choose one of {', '.join(known)}")
        fits = {"ucb": KINDS[:2], "linucb": KINDS[2:], "thompson": KINDS[:1]}.get(self.guide, KINDS)
        if kind not in fits:
            raise ValueError(f"the guide {self.guide!r} is for {' and '.join(fits)} bandits, not for {kind!r} ones")

    def size(self, split: str) -> int | None:
        return None

    def problem(self, split: str, index: int) -> Arms:
        """The bandit at an index: drawn until one belongs to the split."""
        many, pulls, gap = _SHAPE[self.level]
        attempt = 0
        while True:
            dice = rng(self.seed, self.name, self.kind, self.level, index, attempt)
            best = dice.randrange(many)
            if self.kind == "contextual":
                arms = tuple(tuple(round(dice.uniform(0, 1 / _SIZE), 2) for _ in range(_SIZE)) for _ in range(many))
            else:
                arms = tuple((round(0.5 + (gap / 2 if arm == best else -gap / 2), 2),) for arm in range(many))
            found = Arms(self.kind, arms, pulls, dice.getrandbits(31))
            if in_split(split, self.key(found)):
                return found
            attempt += 1

    def key(self, arms: Arms) -> str:
        means = " ".join("/".join(f"{x:g}" for x in own) for own in arms.arms)
        return f"{self.name} {arms.kind} {means} by {arms.pulls}, {arms.tape}"

    def task(self, split: str, index: int) -> Task:
        arms = self.problem(split, index)
        key = self.key(arms)
        dice = rng(key, "episode")
        make = partial(Bandit, arms, self.guide)
        given = {
            "env": make,
            "episode": self.episode(make(), dice, dice.random()),
            "oracle": self.episode(make(), rng(key, "oracle"), 1.0),
        }
        return Task("game", ({"role": "user", "content": make().reset()},), given, key)

    def episode(self, env: Bandit, dice: random.Random, care: float) -> list[Message]:
        """A whole episode with the rewards of its pulls: each pull is UCB's (LinUCB's) with probability `care`, else
        random.
        """
        messages: list[Message] = [{"role": "user", "content": env.reset()}]
        while True:
            skilled = dice.random() < care
            arm = best_arm(worth(env.terms())) if skilled else dice.randrange(len(env.counts))
            found = env.step(str(arm + 1))
            messages.append({"role": "assistant", "content": str(arm + 1), "reward": found.reward})
            if found.over:
                return messages
            messages.append({"role": "user", "content": str(found.observation)})

    def scorer(self) -> dict[str, Any]:
        """The spec from which the verifier process rebuilds this verifier."""
        return {"kind": "builtin", "source": type(self).__module__, "name": type(self).__name__, "level": self.level}

    def facts(self, task: Task) -> tuple[Any, ...]:
        """The bandit as plain numbers."""
        return astuple(task.given["env"]().arms)

    def verify(self, task: Task, reply: str) -> Verdict:
        """Replay a transcript: each line of the reply is one pull. To let a model play, step given["env"]()."""
        return self.verdict(self.facts(task), reply)

    def verdict(self, facts: tuple[Any, ...], reply: str) -> Verdict:
        """The mean reward of the lines of a reply; pulls that are not made earn nothing."""
        kind, arms, pulls, tape = facts
        env = Bandit(Arms(str(kind), tuple(tuple(own) for own in arms), int(pulls), int(tape)))
        total = 0.0
        for line in reply[-LONGEST_REPLY:].splitlines()[:pulls]:
            total += env.step(line).reward or 0.0
        score = min(1.0, max(0.0, total))
        return Verdict(score, score > 0.5, "" if score > 0.5 else f"mean reward {total:.2f}, regret {env.regret:.2f}")
