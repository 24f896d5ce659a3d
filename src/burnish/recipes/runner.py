"""Run a recipe stage by stage in one folder; what is done is not done again."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import yaml

from burnish.api.train import resume, run_anywhere
from burnish.config.options import Config
from burnish.distributed import launch
from burnish.methods.table import find
from burnish.recipes.maker import Maker
from burnish.recipes.plan import PlannedStage, configured, plan_recipe
from burnish.recipes.recipe import Recipe, filled, read_recipe
from burnish.recipes.state import Counting, StageState, State
from burnish.run.folder import Folder
from burnish.run.lock import RunLock
from burnish.run.observers import Observer, Observers
from burnish.run.train import Result
from burnish.util.files import write_text

FILE = "recipe.yaml"
Display = Callable[[], AbstractContextManager[Observer]]


@dataclass(frozen=True)
class RecipeResult:
    """A recipe that has ended or was stopped: its folder and its stages."""

    folder: Path
    stages: tuple[StageState, ...]
    stopped: bool = False

    def __getitem__(self, name: str) -> StageState:
        for one in self.stages:
            if one.name == name:
                return one
        raise KeyError(f"there is no stage {name!r}; there are {', '.join(one.name for one in self.stages)}")

    @property
    def model_path(self) -> Path:
        """The final model: that of the last stage which trained one."""
        made = [one.product for one in self.stages if one.product.endswith("/model") and one.done]
        if not made:
            raise ValueError(f"no stage in {self.folder} has made a model yet; finish it with --resume {self.folder}")
        return self.folder / made[-1]

    def __repr__(self) -> str:
        from burnish.recipes.table import lines

        return "\n".join([f"RecipeResult: {self.folder}{', stopped' if self.stopped else ''}", *lines(self.stages)])


def run_recipe(
    recipe: Recipe,
    folder: Path | None,
    makers: Mapping[str, Maker],
    *,
    display: Display,
    say: Callable[[str], None],
    again: Collection[str] = (),
    resumed: bool = False,
) -> RecipeResult:
    """Check all stages, then run those that are not done.

    display  makes the observer that shows one training run
    again    stages that are run again, with those that depend on them
    resumed  whether the folder is that of an earlier start
    """
    for name in again:
        if name not in recipe.names():
            raise ValueError(
                f"--again {name}: recipe {recipe.name} has no such stage; it has {', '.join(recipe.names())}"
            )
    planned = plan_recipe(recipe, makers)
    folder = _folder(recipe, folder, resumed)
    with _locked(folder):
        state = State(folder)
        for name in recipe.following(again):
            state.forget(name)
        _check_same(planned, state)
        write_text(folder / FILE, yaml.safe_dump(recipe.to_dict(), sort_keys=False, allow_unicode=True))
        for i, one in enumerate(planned):
            where = f"stage {i + 1} of {len(planned)}, {one.name}"
            if one.name in state.stages and state.stages[one.name].done:
                say(f"{where}: done before")
                continue
            say(f"{where}: {_described(one)}")
            try:
                finished = _run_stage(one, planned, state, makers, display)
            except ValueError as error:
                raise ValueError(f"stage {one.name!r}: {error} (burnish recipe --resume {folder} continues)") from error
            if not finished:
                say(f"stopped in stage {i + 1} of {len(planned)}; continue with burnish recipe --resume {folder}")
                return RecipeResult(folder, tuple(state.stages.values()), stopped=True)
        return RecipeResult(folder, tuple(state.stages[one.name] for one in planned))


def read_folder(folder: Path, changes: Mapping[str, object]) -> Recipe:
    """The recipe of a folder that an earlier start made."""
    if not (folder / FILE).is_file():
        raise ValueError(f"{folder} is not the folder of a recipe: it has no {FILE}; pass the one that --out named")
    return read_recipe(folder / FILE, changes, folder.name)


def _folder(recipe: Recipe, folder: Path | None, resumed: bool) -> Path:
    if folder is None:
        folder = Path("runs") / f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"
    if not resumed and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"the folder {folder} exists already; continue it with --resume {folder}, or choose another --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {folder} ({error.strerror}); choose another --out") from None
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = RunLock.take(folder)
    try:
        yield
    finally:
        lock.release()


def _check_same(planned: list[PlannedStage], state: State) -> None:
    """Raise ValueError for a stage that was started with other options or inputs, or whose product is gone."""
    for one in planned:
        before = state.stages.get(one.name)
        if before is None:
            continue
        now = json.loads(json.dumps(one.same()))
        for key in {**before.same, **now}:
            if before.same.get(key) != now.get(key):
                was, becomes = before.same.get(key), now.get(key)
                what = (
                    "its data or model has changed" if key == "inputs" else f"{key} was {was!r} and is now {becomes!r}"
                )
                raise ValueError(
                    f"stage {one.name!r} was run before, but {what}; run it again, with all that depend on it, by "
                    f"--again {one.name}, or set it back"
                )
        if before.done and before.product and not (state.folder / before.product).exists():
            raise ValueError(
                f"stage {one.name!r} is done, but {state.folder / before.product} is gone; --again {one.name} makes it "
                "again"
            )


def _run_stage(
    one: PlannedStage, planned: list[PlannedStage], state: State, makers: Mapping[str, Maker], display: Display
) -> bool:
    """Run or continue one stage; False if it was stopped."""
    products = {other.name: str(state.folder / other.product) for other in planned if other.product}
    options = filled(one.options, products)
    now = state.stages.setdefault(one.name, StageState(one.name, one.stage.what, one.same(), product=one.product))
    state.save()
    counting = Counting(state, one.name)
    if one.stage.command == "train":
        finished = _train(one, options, state, now, counting, display)
    else:
        finished = _command(one, options, state, now, makers[one.stage.command])
    counting.add(0)
    now.seconds, now.tokens = state.spent(one.name)
    now.done = finished
    state.save()
    return finished


def _train(
    one: PlannedStage,
    options: dict[str, object],
    state: State,
    now: StageState,
    counting: Counting,
    display: Display,
) -> bool:
    place = state.folder / one.name
    _, config = configured(one.stage, options)
    if (world := launch.wanted(config.options.ranks)) > 1:
        return _train_on_ranks(place, config, world, now)
    with display() as shown:
        watching = Observers(counting, shown)
        if (place / "config.yaml").is_file():
            result: Result = resume(place, observer=watching, progress=False)
        else:
            config = replace(config, options=replace(config.options, out=str(place)))
            result = run_anywhere(find(one.stage.method), config, watching)
    now.before = result.before.to_json() if result.before else now.before
    now.after = result.after.to_json() if result.after else None
    _without_answers(now)
    return not result.stopped


def _train_on_ranks(place: Path, config: Config, world: int, now: StageState) -> bool:
    """A training stage with `ranks`: processes of their own, of which the first shows the run."""
    file = place.with_name(f".{place.name}.yaml")
    write_text(file, yaml.safe_dump({**config.to_dict(), "out": str(place)}, sort_keys=False))
    code = launch.launch(["--resume", str(place)] if (place / "config.yaml").is_file() else [str(file)], world)
    if code not in (0, 130):
        raise ValueError(f"its ranks ended with exit code {code}, and said why above")
    stored = Folder(place).read_json("evaluation.json") or {}
    now.before, now.after = stored.get("before"), stored.get("after")
    _without_answers(now)
    return code == 0


def _without_answers(now: StageState) -> None:
    """The answers of an evaluation are in the stage's own evaluation.json."""
    for outcome in (now.before, now.after):
        if outcome is not None:
            outcome["shown"] = []


def _command(one: PlannedStage, options: dict[str, object], state: State, now: StageState, maker: Maker) -> bool:
    (state.folder / one.name).mkdir(exist_ok=True)
    if maker.writes:
        file = state.folder / one.product
        code = 0 if file.exists() else maker.main([*maker.words(options), f"--out={file}"])
        if code == 0:
            with file.open(encoding="utf-8") as rows:
                now.numbers = {"rows": sum(1 for _ in rows)}
        return code == 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = maker.main([*maker.words(options), "--json"])
    if code == 0:
        write_text(state.folder / one.name / f"{one.name}.json", printed.getvalue())
        now.numbers = json.loads(printed.getvalue())
    return code == 0


def _described(one: PlannedStage) -> str:
    """A stage as one would write its command."""
    about = {key: one.options[key] for key in ("model", "task") if key in one.options}
    return " ".join([f"{one.stage.what}", *(f"--{key} {value}" for key, value in about.items())])
