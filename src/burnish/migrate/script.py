"""The options in a Python script or notebook of TRL or Unsloth, which is read statement by statement and never run.

Variables, arithmetic and the script's own functions are followed. The calls that hold options are those of
configurations (GRPOConfig(...), LoraConfig(...)), of trainers, of models (from_pretrained, get_peft_model) and of
datasets (load_dataset and what is done to its result).
"""

from __future__ import annotations

import ast
from pathlib import Path

from burnish.migrate.draft import CARRIED, CHANGED, LEFT, Given, Line, Unread
from burnish.migrate.evaluated import Data, Function, Scope, value_of
from burnish.migrate.loaded import joined, loaded, transformed
from burnish.migrate.reward_source import sources_of

_ADAPTER = {"LoraConfig", "get_peft_model"}
_OTHER_CONFIGS = {"BitsAndBytesConfig", "LoraConfig", "ModelConfig", "PeftConfig", "AutoConfig"}
_ARGUMENTS = {"TrainingArguments", "UnslothTrainingArguments"}
_VISION = ("FastVisionModel", "AutoModelForVision2Seq", "AutoModelForImageTextToText", "ForConditionalGeneration")
_OF_TRAINER = {  # arguments of a trainer that hold no option of a run
    "tokenizer": "the model's own tokenizer",
    "processing_class": "the model's own tokenizer",
    "peft_config": "its fields are listed by themselves",
    "quantization_config": "its fields are listed by themselves",
    "device_map": "models are placed by --device and --ranks",
}
_NOT_OF_TRAINER = {
    "data_collator": "micro-batches are packed, and what is trained on is said by train_on",
    "callbacks": "a callback is code; --patience, --log and --save-every do what the usual ones do",
    "compute_metrics": "held-out measures are burnish's own (docs/metrics.md)",
    "formatting_func": "rows are rendered by the chat template; write the column it makes into the data",
    "ref_model": "the reference is the model before training",
    "eval_dataset": "the held-out rows are the data's own test split, or a tenth of the prompts",
    "preprocess_logits_for_metrics": "held-out measures are burnish's own (docs/metrics.md)",
    "optimizers": "the optimiser is AdamW",
}
_MADE = "it is made while the script runs; the first dataset that is loaded is taken, if there is one: check task"
_DEPTH = 8  # calls of the script's own functions inside each other


def read_script(text: str, path: Path) -> Given:
    """What a script says, or ValueError."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{path} is not a Python script ({error}); give the script that trains") from None
    reader = _Reader(path)
    reader.library = "Unsloth" if any(_imports(node, "unsloth") for node in ast.walk(tree)) else "TRL"
    scope = Scope()
    try:
        reader.follow(tree.body, scope)
        if not reader.given.flat:  # the calls are in functions that another file calls
            for function in list(scope.functions.values()):
                reader.follow(function.body, Scope(dict(scope.names), scope.functions, 1))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be read") from None
    return reader.finished(tree)


def _imports(node: ast.AST, package: str) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.partition(".")[0] == package for name in names)


class _Reader:
    """Follows statements and gathers options."""

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, "TRL"
        self.given = Given()
        self.data: Data | None = None  # of a trainer, else the first that is loaded
        self.trained = False
        self.rewards: list[object] = []

    # --------------------------------------------------------------------------------------------------- statements

    def follow(self, statements: list[ast.stmt], scope: Scope) -> object:
        """Follow statements; the value of the first `return`."""
        for statement in statements:
            value = self._statement(statement, scope)
            if isinstance(statement, ast.Return) or value is not None:
                return value
        return None

    def _statement(self, node: ast.stmt, scope: Scope) -> object:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                scope.functions[node.name] = node
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, self.value(node.value, scope), scope)
            case ast.AugAssign(target=ast.Name(id=name)):
                added = ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value)
                scope.names[name] = self.value(added, scope)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.Return():
                return self.value(node.value, scope) if node.value is not None else None
            case ast.If():
                test = self.value(node.test, scope)
                main = ast.unparse(node.test).replace('"', "'") == "__name__ == '__main__'"
                branches = [node.body, node.orelse] if isinstance(test, Unread) and not main else []
                for body in branches or [node.body if main or test else node.orelse]:
                    if (returned := self.follow(body, scope)) is not None:
                        return returned
            case ast.For(body=body) | ast.While(body=body) | ast.With(body=body):
                return self.follow(body, scope)
            case ast.Try():
                return self.follow([*node.body, *node.orelse, *node.finalbody], scope)
        return None

    def _assign(self, target: ast.expr, value: object, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            values = value if isinstance(value, list) and len(value) == len(target.elts) else None
            for i, one in enumerate(target.elts):
                self._assign(one, values[i] if values else Unread(ast.unparse(one)), scope)
        elif isinstance(target, ast.Attribute) and isinstance(scope.names.get(ast.unparse(target.value)), _Config):
            self._options({target.attr: value})  # training_args.output_dir = ...

    def value(self, node: ast.expr, scope: Scope) -> object:
        return value_of(node, scope, self._call)

    # -------------------------------------------------------------------------------------------------------- calls

    def _call(self, node: ast.Call, scope: Scope) -> object:
        name = ast.unparse(node.func).rpartition(".")[2]
        whole = ast.unparse(node.func)
        owner = self.value(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, Data):
            return transformed(owner, name, node, lambda one: self.value(one, scope), scope)
        keywords = {word.arg: self.value(word.value, scope) for word in node.keywords if word.arg}
        arguments = [self.value(one, scope) for one in node.args]
        if any(word in whole for word in _VISION):
            self.given.sees = True
        if name in ("load_dataset", "from_json", "from_csv", "load_from_disk"):
            return self._loaded(loaded(name, arguments, keywords))
        if name in ("concatenate_datasets", "interleave_datasets") and arguments:
            return self._loaded(joined(name, arguments[0], keywords), replaces=True)
        if name == "standardize_sharegpt" and arguments and isinstance(arguments[0], Data):
            return arguments[0].after("standardize_sharegpt", "ShareGPT conversations are read as they are")
        if whole in scope.functions:
            return self._own(scope.functions[whole], arguments, keywords, scope)
        self._gathered(name, whole, arguments, keywords, node)
        return _Config() if name.endswith("Config") or name in _ARGUMENTS else Unread("")

    def _own(self, function: object, arguments: list[object], keywords: dict[str, object], scope: Scope) -> object:
        """A call of one of the script's own functions."""
        if scope.depth >= _DEPTH or not isinstance(function, ast.FunctionDef):
            return Unread("")
        names = [one.arg for one in function.args.args]
        defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        inner = dict(scope.names) | {name: self.value(one, scope) for name, one in defaults.items()}
        inner |= dict(zip(names, arguments, strict=False)) | {k: v for k, v in keywords.items() if k in names}
        value = self.follow(function.body, Scope(inner, dict(scope.functions), scope.depth + 1))
        return Unread("") if value is None else value

    def _loaded(self, data: Data, replaces: bool = False) -> Data:
        if self.data is None or (replaces and not self.trained):
            self.data = data
        return data

    def _gathered(
        self, name: str, whole: str, arguments: list[object], keywords: dict[str, object], node: ast.Call
    ) -> None:
        """The options of a call, if it holds any."""
        if name == "from_pretrained" and "Tokenizer" not in whole and "Processor" not in whole:
            self._options({**_first("model_name", arguments), **keywords})
        elif name in _ADAPTER:
            self._options({**keywords, "adapter_call": name})
        elif name.endswith("Config") or name in _ARGUMENTS:
            self._configured(name, keywords)
        elif name.endswith("Trainer") and name != "PatchDPOTrainer":
            self._trainer(name, arguments, keywords)
        elif name == "train_on_responses_only":
            self._options({"train_on_responses_only": True})
        elif name in ("get_chat_template", "setup_chat_format"):
            self._options({"chat_template_name": keywords.get("chat_template", "chatml")})
        elif name in ("save_pretrained_merged", "push_to_hub_merged", "save_pretrained_gguf", "push_to_hub_gguf"):
            self._options({name: keywords.get("save_method", True)})
        elif name == "push_to_hub" and whole != "api.push_to_hub":
            self._options({"push_to_hub": True})

    def _configured(self, name: str, keywords: dict[str, object]) -> None:
        self._options(keywords)
        if name not in _OTHER_CONFIGS | _ARGUMENTS:
            self.given.method = name.removesuffix("Config").removesuffix("Script").lower()

    def _trainer(self, name: str, arguments: list[object], keywords: dict[str, object]) -> None:
        self.given.method = self.given.method or name.removeprefix("Unsloth").removesuffix("Trainer").lower() or "sft"
        keywords = {**_first("model", arguments), **keywords}
        dataset = keywords.get("train_dataset")
        if isinstance(dataset, Data):
            self.data, self.trained = dataset, True
        elif "train_dataset" in keywords:
            self.given.lines.append(Line("train_dataset", str(keywords["train_dataset"]), LEFT, _MADE))
        if "reward_funcs" in keywords:
            functions = keywords.pop("reward_funcs")
            self.rewards = functions if isinstance(functions, list) else [functions]
        for key, value in keywords.items():
            text = "" if value is None else str(value.text if isinstance(value, Unread) else value)
            if key in ("args", "train_dataset") or (key == "model" and not isinstance(value, str)):
                continue
            if key in _OF_TRAINER:
                self.given.lines.append(Line(key, text, CARRIED, _OF_TRAINER[key]))
            elif key in _NOT_OF_TRAINER:
                if value is not None and value != []:
                    self.given.lines.append(Line(key, text or key, LEFT, _NOT_OF_TRAINER[key]))
            else:
                self._options({"model_name" if key == "model" else key: value})

    def _options(self, options: dict[str, object]) -> None:
        prefix = str(options.get("adapter_call", ""))
        options = {k: v for k, v in options.items() if k != "adapter_call" and not isinstance(v, _Config)}
        names = {"r": "lora_r", "alpha": "lora_alpha", "dropout": "lora_dropout", "bias": "lora_bias"}
        if prefix:
            names |= {"task_type": "lora_task_type", "random_state": "lora_random_state"}
            options[prefix] = True
        self.given.flat |= {names.get(key, key) if prefix else key: value for key, value in options.items()}

    # ------------------------------------------------------------------------------------------------------- the end

    def finished(self, tree: ast.Module) -> Given:
        given = self.given
        given.library = self.library
        if self.data is not None:
            given.flat["train_dataset"] = self.data
            given.lines += [
                Line(
                    call,
                    call,
                    CHANGED if text.startswith("~") else LEFT if text.startswith("-") else CARRIED,
                    text.lstrip("~-"),
                )
                for call, text in self.data.done
            ]
            if self.data.system is not None:
                given.flat["system_prompt"] = self.data.system
        if self.rewards:
            names = [one.name if isinstance(one, Function) else one for one in self.rewards]
            given.flat["reward_funcs"] = [str(one) for one in names]
            wanted = [one.name for one in self.rewards if isinstance(one, Function)]
            given.rewards, lacking = sources_of(tree, wanted)
            given.lines += [
                Line(f"{one} in reward functions", one, LEFT, "it is made while the script runs; define it in the file")
                for one in lacking
            ]
        if not given.flat:
            raise ValueError(
                f"{self.path} has no call such as GRPOConfig(...) with values in it; give a file with options"
            )
        return given


class _Config:
    """The value of GRPOConfig(...): its options are gathered."""


def _first(name: str, arguments: list[object]) -> dict[str, object]:
    return {name: arguments[0]} if arguments and isinstance(arguments[0], str) else {}
