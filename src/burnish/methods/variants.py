"""Methods that differ from another by a number or by one part, declared by what differs."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace

from burnish import draw
from burnish.method import Method, Role

Arguments = Mapping[str, object]
Recipe = Callable[..., Method]


def variant(base: Recipe) -> Callable[[Callable[..., Arguments]], Recipe]:
    """A method that is `base` with other arguments: the decorated function makes them from options of its own.

        @register(papers.BEST_OF_N, family="decoding", summary="Imitate the best of n samples.")
        @variant(raft)
        def best_of_n_distill(*, n: opt.Replies = 16) -> Arguments:
            \"\"\"Best-of-n distillation: ...\"\"\"
            return {"n": n, "best": 1, "updates": 1}

    base: a method, or a function(task, *, ...) -> Method that several methods share. Its options are those of the
    variant, but for what the function sets. An option of the function stands in the place of the base's option of that
    name, else of the first one that is set; one that must be given stands first. "models" among what the function
    returns are roles in the place of the base's.
    """
    plain: Recipe = inspect.unwrap(base)
    shared = inspect.signature(plain).parameters

    def declare(function: Callable[..., Arguments]) -> Recipe:
        own = inspect.signature(function).parameters

        @functools.wraps(function)
        def build(task: draw.Source, **options: object) -> Method:
            signature.bind(task, **options)  # a TypeError for what the variant sets itself
            mine = {name: options.pop(name) for name in own if name in options}
            arguments = dict(function(**mine))
            models = typing.cast("Mapping[str, Role]", arguments.pop("models", {}))
            built = plain(task, **{**options, **arguments})
            return replace(built, models={**built.models, **models}) if models else built

        del build.__wrapped__  # its options are not those of the function alone
        hints = {
            **typing.get_type_hints(plain, include_extras=True),
            **typing.get_type_hints(function, include_extras=True),
            "return": Method,
        }
        needed = {name: "" for name, option in own.items() if option.default is option.empty}
        options = _merged(shared, own, set(function(**needed)))
        parameters = [option.replace(annotation=hints[option.name]) for option in options]
        signature = inspect.Signature(parameters, return_annotation=Method)
        build.__annotations__ = {option.name: hints[option.name] for option in options} | {"return": Method}
        vars(build)["__signature__"] = signature
        return build

    return declare


def _merged(
    shared: Mapping[str, inspect.Parameter], own: Mapping[str, inspect.Parameter], fixed: set[str]
) -> list[inspect.Parameter]:
    """The options of the base, with the variant's own in their places and without those that it fixes."""
    new = [option for name, option in own.items() if name not in shared and option.default is not option.empty]
    merged = []
    for name, option in shared.items():
        if name in own:
            merged.append(own[name])
        elif name not in fixed:
            merged.append(option)
        elif new:
            merged, new = [*merged, *new], []
    needed = [one for name, one in own.items() if name not in shared and one.default is one.empty]
    return [*merged[:1], *needed, *merged[1:], *new]
