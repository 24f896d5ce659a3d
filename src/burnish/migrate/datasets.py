"""Their datasets as --task: names, configurations, splits, columns, and how several become one.

Several are concatenated, as theirs are: every row comes once. Shares are written where theirs have probabilities.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

from burnish.migrate.draft import CARRIED, CHANGED, LEFT, Draft, Kind, Line, Unread
from burnish.migrate.evaluated import Data
from burnish.migrate.pictures import OTHERS, PICTURES

_COLUMNS = {  # LLaMA-Factory's dataset_info.json -> ours
    "prompt": "prompt",
    "response": "demo",
    "chosen": "chosen",
    "rejected": "rejected",
    "messages": "messages",
    "system": "system",
    "tools": "tools",
    "kto_tag": "label",
    "text": "text",
    "images": "images",
}
_KNOWN = {  # columns that burnish finds by itself, by part
    "prompt": {"prompt", "question", "instruction", "query", "problem"},
    "demo": {"completion", "response", "output", "solution"},
    "messages": {"messages", "conversations", "conversation"},
    "system": {"system", "system_prompt"},
    "tools": {"tools"},
    "label": {"label"},
    "text": {"text"},
    "chosen": {"chosen"},
    "rejected": {"rejected"},
    "images": PICTURES,
}
_NAMES = ("dataset", "datasets", "dataset_name", "data.train_files", "train_file", "train_files", "data_path")
_AXOLOTL_READ = {"path", "name", "split", "type", "data_files", "revision"}
_FIELDS = {  # Axolotl's names of columns -> ours
    "field_messages": "messages",
    "field_instruction": "prompt",
    "field_output": "demo",
    "field_system": "system",
    "field_tools": "tools",
    "field_prompt": "prompt",
    "field_chosen": "chosen",
    "field_rejected": "rejected",
    "field_completion": "demo",
    "field_label": "label",
    "field": "text",
}


def tasks(draft: Draft) -> None:
    """Set `task`."""
    data = draft.flat.get("train_dataset")
    if isinstance(data, Data):
        _of_script(draft, data)
        return
    key = draft.named(*_NAMES)
    if key is None:
        return
    value = draft.flat[key]
    entries = value if isinstance(value, list) else str(value).split(",") if key == "dataset" else [value]
    if all(isinstance(one, Mapping) for one in entries):
        sources = [_of_mapping(draft, one, i) for i, one in enumerate(entries)]
        draft.options["task"] = ",".join(sources)
        draft.same(key, "task; its entries are listed by themselves" + _joined(len(sources)))
        return
    names = [os.path.expandvars(os.path.expanduser(str(one).strip())) for one in entries]
    config, split = draft.named("dataset_config"), draft.named("dataset_train_split")
    sources = [_listed(draft, name) if draft.library == "LLaMA-Factory" else name for name in names]
    if config is not None:
        sources = [f"{name}:{draft.flat[config]}" for name in sources]
        draft.same(config, "task: the configuration after a colon")
    if split is not None and draft.flat[split] != "train":
        sources = [f"{name},split={draft.flat[split]}" for name in sources]
    draft.same(split, "task: split")
    sources = [",".join([name, *_keys(draft)]) for name in sources]
    draft.same(draft.named("dataset_dir"), "task: the folder of the files")
    shares = _shares(draft, len(sources))
    if shares:
        pieces = [one.partition(",") for one in sources]
        sources = [f"{name}*{share:g}{comma}{rest}" for (name, comma, rest), share in zip(pieces, shares, strict=True)]
    heldout = _heldout(draft)
    draft.options["task"] = ",".join(source + heldout for source in sources)
    draft.same(key, "task" + ("" if shares else _joined(len(sources))))


def _keys(draft: Draft) -> list[str]:
    """verl's names of columns."""
    options = []
    for key, ours in (
        ("data.prompt_key", "prompt"),
        ("data.response_key", "demo"),
        ("data.multiturn.messages_key", "messages"),
        ("data.image_key", "images"),
    ):
        if draft.named(key):
            column = str(draft.flat[key])
            usual = column in _KNOWN[ours]
            options += [] if usual else [f"{ours}={column}"]
            draft.same(key, "found by its name" if usual else f"task: {ours}={column}")
    draft.same(draft.named("data.multiturn.enable"), "conversations are known by their column")
    return options


def _joined(many: int) -> str:
    return f": {many} datasets, every row of each once" if many > 1 else ""


def _shares(draft: Draft, many: int) -> list[float]:
    """LLaMA-Factory's interleave_probs, where mix_strategy interleaves."""
    key, how = draft.named("interleave_probs"), draft.named("mix_strategy")
    strategy = str(draft.value("mix_strategy", default="concat"))
    if strategy == "concat":
        draft.same(how, "concatenated: every row once")
        draft.leave(key, "mix_strategy concat does not use it")
        return []
    value = draft.flat[key] if key else [1.0 / many] * many
    parts = value if isinstance(value, list) else str(value).split(",")
    if len(parts) != many:
        draft.leave(key, f"it has {len(parts)} numbers for {many} datasets")
        return []
    draft.same(key, "task: weights")
    draft.changed(how, "task: weights; an epoch has every row of every dataset at least once (docs/data.md)")
    return [float(one) for one in parts]


def _heldout(draft: Draft) -> str:
    """The share that is held out, as an option of the task."""
    key = draft.named("val_size", "val_set_size")
    if key is None:
        return ""
    value = draft.flat[key]
    share = float(value) if isinstance(value, int | float) or str(value).replace(".", "", 1).isdigit() else 0.0
    if 0 < share < 1:
        draft.same(key, f"task: heldout={share:g}")
        return f",heldout={share:g}"
    if share == 0:
        draft.changed(key, "a tenth of the prompts is held out for the evaluation, or the data's own test split")
    else:
        draft.leave(key, "a share is held out, not a number of rows: heldout=0.05 after the task")
    return ""


# ------------------------------------------------------------------------------------------------------- LLaMA-Factory


def _listed(draft: Draft, name: str) -> str:
    """The file or hub name of a dataset that LLaMA-Factory's dataset_info.json describes, with its columns."""
    place = draft.folder / str(draft.flat.get("dataset_dir", "data"))
    try:
        entry = json.loads((place / "dataset_info.json").read_text())[name.partition(",")[0]]
    except (OSError, ValueError, KeyError, TypeError):
        entry = None
    if not isinstance(entry, Mapping):
        draft.notes.append(
            f"dataset {name}: there is no dataset_info.json that describes it; name a file or hub dataset"
        )
        return name
    columns = dict(entry.get("columns", {}))
    if str(draft.flat.get("stage")) == "pt" and "prompt" in columns:
        columns["text"] = columns.pop("prompt")  # pre-training reads the texts of this column
    if OTHERS & set(columns):
        raise ValueError(
            f"the dataset {name} has {', '.join(sorted(OTHERS & set(columns)))}; burnish reads text and pictures: "
            "leave it out"
        )
    file = str(place / entry["file_name"]) if "file_name" in entry else str(entry.get("hf_hub_url", name))
    file += f":{entry['subset']}" if entry.get("subset") else ""
    options = [f"split={entry['split']}"] if entry.get("split", "train") != "train" else []
    for theirs, column in columns.items():
        ours = _COLUMNS.get(theirs)
        if ours and column not in _KNOWN.get(ours, ()):
            options.append(f"{ours}={column}")
        elif not ours and not (theirs == "query" and column == "input"):
            draft.lines[f"{name}: {theirs}"] = _line(f"{name}: {theirs}", column, "burnish has no such part of a row")
    for theirs in ("num_samples", "script_url", "ms_hub_url", "folder"):
        if theirs in entry:
            draft.lines[f"{name}: {theirs}"] = _line(
                f"{name}: {theirs}", entry[theirs], "all rows of the data are used"
            )
    return ",".join([file, *options])


def _line(name: str, value: object, why: str, kind: Kind = LEFT) -> Line:
    return Line(name, value, kind, why)


# ------------------------------------------------------------------------------------------------------------- Axolotl


def _of_mapping(draft: Draft, entry: Mapping[str, object], number: int) -> str:
    """One entry of Axolotl's `datasets`, each of whose fields gets a line."""
    prefix = f"datasets[{number}]."

    def line(field: str, kind: Kind, text: str) -> None:
        draft.lines[prefix + field] = _line(prefix + field, entry[field], text, kind)

    path = os.path.expandvars(os.path.expanduser(str(entry.get("path", ""))))
    files = entry.get("data_files")
    if files and (path in ("json", "csv", "parquet", "text") or not path):
        path = str(files[0] if isinstance(files, list) else files)
        line("data_files", CARRIED, "task")
    elif files:
        line("data_files", LEFT, "all files of the dataset are read")
    options = []
    if entry.get("name"):
        path += f":{entry['name']}"
        line("name", CARRIED, "task: the configuration after a colon")
    if entry.get("revision"):
        base, colon, config = path.partition(":")
        path = f"{base}@{entry['revision']}{colon}{config}"
        line("revision", CARRIED, "task: the revision after @")
    if "split" in entry:
        split = str(entry["split"]).partition("[")[0]
        options += [f"split={split}"] if split != "train" else []
        line(
            "split",
            CARRIED if "[" not in str(entry["split"]) else CHANGED,
            "task: split" if "[" not in str(entry["split"]) else "task: split; all rows of it are used",
        )
    line("path", CARRIED, "task") if "path" in entry else None
    kind = entry.get("type")
    columns = dict(entry)
    if isinstance(kind, Mapping):
        columns |= {key: value for key, value in kind.items() if key.startswith("field")}
        options += _columns(columns, line_to=lambda *_: None)
        rest = [str(key) for key in kind if not str(key).startswith("field")]
        line(
            "type",
            CHANGED,
            "task: its columns; rows are rendered by the chat template"
            + (f", without its {', '.join(rest)}" if rest else ""),
        )
    elif kind is not None:
        line("type", *_kind(str(kind)))
        options += _columns(columns, line_to=line)
    _others(entry, line)
    return ",".join([path, *dict.fromkeys(options)]) + _heldout(draft)


def _kind(kind: str) -> tuple[Kind, str]:
    """What becomes of a prompt strategy."""
    if kind.startswith(("chat_template", "sharegpt", "chatml", "llama3", "completion", "user_defined")):
        return CARRIED, "rows are known by their columns (docs/data.md)"
    if kind.startswith(("alpaca", "instruct", "gpteacher", "context_qa")):
        return CHANGED, "instruction and input are the user's message; there is no Alpaca preamble"
    return CHANGED, "rows are known by their columns (docs/data.md), whatever the prompt strategy"


def _columns(entry: Mapping[str, object], line_to: Callable[[str, Kind, str], None]) -> list[str]:
    options = []
    for theirs, ours in _FIELDS.items():
        column = entry.get(theirs)
        if not isinstance(column, str):
            continue
        if column not in _KNOWN.get(ours, ()):
            options.append(f"{ours}={column}")
        line_to(
            theirs, CARRIED, f"task: {ours}={column}" if column not in _KNOWN.get(ours, ()) else "found by its name"
        )
    return options


def _others(entry: Mapping[str, object], line: Callable[[str, Kind, str], None]) -> None:
    """Fields of an entry that are about messages, masks and shards."""
    for key, value in entry.items():
        if key in _AXOLOTL_READ or (key in _FIELDS and isinstance(value, str)):
            continue
        if key in ("message_property_mappings", "message_field_role", "message_field_content"):
            fields = set(value.values()) if isinstance(value, Mapping) else {value}
            if fields <= {"role", "content", "from", "value", "tool_calls", "weight"}:
                line(key, CARRIED, "messages with role and content, or from and value, are read as they are")
            else:
                line(key, LEFT, "messages have role and content, or from and value; rename the fields")
        elif key in ("roles", "roles_to_train", "train_on_eos", "train_on_eot"):
            line(key, *_role(key, value))
        elif key in ("message_field_training", "message_field_training_detail"):
            line(key, LEFT, "a message says with train: false that it is not trained on")
        elif key in ("chat_template", "chat_template_jinja"):
            line(key, LEFT, "the template is one for the run: chat_template")
        elif key == "ds_type":
            line(key, CARRIED, "the kind of a file is that of its name")
        else:
            line(key, LEFT, "burnish has no such option of a dataset")


def _role(key: str, value: object) -> tuple[Kind, str]:
    if key == "roles":
        return CHANGED, "the usual names of roles are known: user and human, assistant and gpt, system"
    if key == "roles_to_train":
        return (
            (CARRIED, "train_on all: the assistant's")
            if value == ["assistant"] or value == ["gpt"]
            else (LEFT, "train_on is all replies, the last, or everything")
        )
    if value in ("turn", "all", True):
        return CARRIED, "the end of a trained reply is trained on"
    return CHANGED, "the end of every trained reply is trained on"


# -------------------------------------------------------------------------------------------------------------- scripts


def _of_script(draft: Draft, data: Data) -> None:
    """A dataset that a script loads."""
    sources = []
    for i, (name, options) in enumerate(data.sources):
        options = dict(options)
        path = os.path.expandvars(os.path.expanduser(name))
        path += f"@{options.pop('revision')}" if "revision" in options else ""
        path += f":{options.pop('config')}" if "config" in options else ""
        path += f"*{data.weights[i]:g}" if data.weights else ""
        split = options.pop("split", "train")
        written = [f"split={split}"] if split != "train" and not isinstance(split, Unread) else []
        sources.append(",".join([path, *written, *(f"{key}={value}" for key, value in options.items())]))
    draft.options["task"] = ",".join(sources)
    text = "task" + (": weights" if data.weights else _joined(len(sources)))
    draft.lines["train_dataset"] = _line("train_dataset", ", ".join(name for name, _ in data.sources), text, CARRIED)
