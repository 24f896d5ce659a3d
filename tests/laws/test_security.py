"""The safety rules of the house, held by a lint: no pickle, no code from data, no shell, no open doors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import burnish

SRC = Path(burnish.__file__).parent
FETCHES = {
    "models/smollm2.py",  # fetches a package, through pip
    "media/fetched.py",  # fetches pictures of rows, where the run says --allow-urls
    "judges/endpoint.py",  # asks the judge that the user names
    "envs/of_openenv.py",  # asks the environment server that the user names
    "serve/server.py",  # answers agents on the loopback address, by the server below
    "report/server.py",  # the dashboard, by default for this machine, by the server below
    "util/http_server.py",  # the only server
    "util/http_message.py",  # its requests and answers
    "util/http_connections.py",  # and connections
    "report/endpoint.py",  # resolves the server's host
    "sandbox/code/box.py",  # a socket pair, which passes descriptors to its child
    "sandbox/code/zygote.py",  # the other end of it
    "distributed/heartbeat.py",  # ranks of a run tell each other that they live, with a token
    "distributed/peers.py",  # the addresses for it
    "distributed/meeting.py",  # where ranks of several machines meet, with a token
    "envs/channel.py",  # socket pairs between a run and the processes of its environments
}
RUNS_CODE = {  # the only files that run text as code: in a process that has confined itself
    "sandbox/code/load.py",  # the program
    "sandbox/code/checker.py",  # its tests
}

PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
NETWORK = {"requests", "httpx", "aiohttp", "urllib", "urllib3", "http", "socket", "ftplib", "smtplib", "paramiko"}
CALLS = {  # the call as it is written -> why it is forbidden
    "torch.load": "torch.load unpickles; use safetensors",
    "torch.save": "torch.save pickles; use safetensors",
    "numpy.load": "numpy.load may unpickle; use safetensors or JSON",
    "np.load": "numpy.load may unpickle; use safetensors or JSON",
    "yaml.load": "yaml.load builds objects; use parse_yaml of util/safe_yaml.py",
    "yaml.unsafe_load": "yaml.unsafe_load builds objects; use parse_yaml of util/safe_yaml.py",
    "yaml.full_load": "yaml.full_load builds objects; use parse_yaml of util/safe_yaml.py",
    "yaml.safe_load": "yaml.safe_load expands aliases without end; use parse_yaml of util/safe_yaml.py",
    "yaml.safe_load_all": "yaml.safe_load_all expands aliases without end; use parse_yaml of util/safe_yaml.py",
    "os.system": "os.system runs a shell; use subprocess.run with a list",
    "os.popen": "os.popen runs a shell; use subprocess.run with a list",
    "subprocess.getoutput": "it runs a shell; use subprocess.run with a list",
    "eval": "eval runs text as code",
    "exec": "exec runs text as code",
    "compile": "compile makes code of text",
    "__import__": "__import__ hides an import; write it as one",
}
KEYWORDS = {
    "trust_remote_code": "code from a model directory is never run",
    "shell": "a shell reads text as commands; pass a list",
    "allow_pickle": "pickle runs code",
}
LOADERS = {"from_pretrained", "from_config", "LLM"}  # without trust_remote_code=False, transformers asks on stdin
NO_LOADERS = {"peft.PeftModel.from_pretrained"}  # puts adapters on a model that is loaded already


def forbidden(code: str, path: str = "module.py") -> list[str]:
    """What the rules forbid in a module, each as 'path:line: why'."""
    tree = ast.parse(code)
    names = _imported_names(tree)
    return [f"{path}:{line}: {why}" for node in ast.walk(tree) for line, why in _broken(node, names, path)]


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """What a name stands for: {"load": "torch.load"} after `from torch import load`, {"t": "torch"} after `as t`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return found


def _broken(node: ast.AST, names: dict[str, str], path: str) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for module in modules:
            root = module.split(".")[0]
            if root in PICKLES:
                yield node.lineno, f"{root} runs code from data; use safetensors and JSON"
            if root in NETWORK and path not in FETCHES:
                yield node.lineno, f"{root} reaches the network, which only {', '.join(FETCHES)} may"
    elif isinstance(node, ast.Call):
        if (name := _written(node.func, names)) in CALLS and not (name in ("exec", "compile") and path in RUNS_CODE):
            yield node.lineno, CALLS[name]
        given = {keyword.arg for keyword in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else name.rpartition(".")[2]
        if called in LOADERS and name not in NO_LOADERS and "trust_remote_code" not in given:
            yield node.lineno, f"{called} needs trust_remote_code=False: {KEYWORDS['trust_remote_code']}"
        for keyword in node.keywords:
            allowed = isinstance(keyword.value, ast.Constant) and not keyword.value.value
            if keyword.arg in KEYWORDS and not allowed:
                yield node.lineno, f"{keyword.arg}: {KEYWORDS[keyword.arg]}"
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            on = not (isinstance(value, ast.Constant) and not value.value)
            if isinstance(key, ast.Constant) and key.value in KEYWORDS and on:
                yield node.lineno, f"{key.value}: {KEYWORDS[key.value]}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "0.0.0.0" in node.value:
        yield node.lineno, "0.0.0.0 opens a port to every network; listen on 127.0.0.1"


def _written(function: ast.expr, names: dict[str, str]) -> str:
    """The dotted name that is called, its imports looked through; nothing for what is not a name."""
    if isinstance(function, ast.Name):
        return names.get(function.id, function.id)
    if isinstance(function, ast.Attribute):
        base = _written(function.value, names)
        return f"{base}.{function.attr}" if base else ""
    return ""


FILES = sorted(str(file.relative_to(SRC)) for file in SRC.rglob("*.py"))


def test_the_source_obeys() -> None:
    assert len(FILES) > 50
    found = [line for file in FILES for line in forbidden((SRC / file).read_text(), file)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import cloudpickle as c",
        "from dill import loads",
        "import marshal, json",
        "def f():\n    import shelve",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x')",
        "from torch import load\nload('x')",
        "from torch import load as read\nread('x')",
        "import torch\ntorch.save({}, 'x')",
        "eval('1')",
        "exec('x = 1')",
        "compile('1', 'f', 'eval')",
        "__import__('os')",
        "AutoModel.from_pretrained('x', trust_remote_code=True)",
        "AutoModel.from_pretrained('x', trust_remote_code=asked)",
        "AutoModel.from_pretrained('x', **{'trust_remote_code': True})",
        "AutoModel.from_pretrained('x')",
        "AutoConfig.from_pretrained('x', **options)",
        "AutoModel.from_config(config)",
        "import transformers as t\nt.AutoTokenizer.from_pretrained('x')",
        "choice().from_pretrained('x')",
        "from vllm import LLM\nLLM(model='x')",
        "import os\nos.system('ls')",
        "from os import system\nsystem('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "serve(host='0.0.0.0')",
        "URL = f'http://0.0.0.0:{port}'",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "from yaml import load\nload(text)",
        "import yaml\nyaml.safe_load(text)",
        "import requests",
        "from urllib.request import urlopen",
        "import http.client",
        "import socket",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ],
)
def test_the_lint_catches(code: str) -> None:
    assert forbidden(code)


@pytest.mark.parametrize(
    "code",
    [
        "import yaml\nyaml.safe_dump(value)",
        "from safetensors.torch import load_file\nload_file('x')",
        "import re\nre.compile('x')",
        "model.eval()",
        "loader.exec_module(module)",
        "model.load_state_dict(state)",
        "AutoModel.from_pretrained('x', trust_remote_code=False)",
        "from vllm import LLM\nLLM(model='x', trust_remote_code=False)",
        "from peft import PeftModel\nPeftModel.from_pretrained(model, 'x')",
        "import subprocess\nsubprocess.run(['ls'], shell=False, timeout=5)",
        "HOST = '127.0.0.1'",
        "import json\njson.load(file)",
        "'''It never calls eval or pickle.'''",
    ],
)
def test_the_lint_lets_pass(code: str) -> None:
    assert not forbidden(code)


def test_only_the_file_that_fetches_may_use_the_network() -> None:
    code = "from urllib.request import urlopen"
    assert forbidden(code, "models/load.py") and not forbidden(code, "models/smollm2.py")
