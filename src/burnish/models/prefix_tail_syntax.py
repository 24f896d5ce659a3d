"""A chat template, rewritten so that its loop over the messages can begin at a later one.

What the body of that loop reads of what was computed before it (the number of the last question, for example) goes
through filters that note it: a comparison with a number notes on which side of it the value was, anything else the
value itself. A loop before it that only looks for some message runs through those for which it may do something, and
ends when it has found what it looks for.

The filters are `_resumed` (the loop over the messages), `_live` (a loop before it), `_compared` and `_exact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jinja2 import nodes
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

OPERATORS = frozenset({"gt", "gteq", "lt", "lteq"})
ASKED = frozenset({"index", "index0", "first", "last", "length", "revindex", "revindex0"})  # of any loop
NEIGHBOURS = frozenset({"previtem", "nextitem"})  # of the loop over the messages
_ELSEWHERE = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
_UNFIT = (nodes.NSRef, nodes.Break, nodes.CallBlock, nodes.Macro, nodes.With)  # in the loop over the messages
_SCOPES = (nodes.For, nodes.Macro, nodes.CallBlock)  # what is set in them is not seen behind them
_CHANGES = frozenset({"strftime_now", "lipsum"})  # what differs from one render to the next
_PROMPT = "add_generation_prompt"


@dataclass(frozen=True)
class Plan:
    """What was rewritten.

    values  the names of what is computed before the loop over the messages and read in it
    keys    what is read of them: NAME or NAME.ATTRIBUTE
    live    the conditions under which a message can matter to a loop before it: its name there, and a template
    """

    values: tuple[str, ...]
    keys: set[str] = field(default_factory=set)
    live: list[tuple[str, nodes.Template]] = field(default_factory=list)


def rewritten(tree: nodes.Template, room: SandboxedEnvironment) -> Plan | None:
    """Rewrite a template, whose loops are counted, in place; None where it is of another form, and stays as it is."""
    loops = [at for at, node in enumerate(tree.body) if isinstance(node, nodes.For)]
    if not loops or any(True for _ in tree.find_all(_ELSEWHERE)):
        return None
    before, loop = tree.body[: loops[-1]], tree.body[loops[-1]]
    assert isinstance(loop, nodes.For)
    computed = {*_stored(before)}
    if not _fits(tree, loop, computed):
        return None
    plan = Plan(tuple(sorted(computed & {*_loaded(loop.body)})))
    tracker = _Tracker(computed, plan.keys)
    loop.body = [tracker.visit(node) for node in loop.body]
    counted = loop.iter
    assert isinstance(counted, nodes.Filter) and counted.node is not None  # it counts the turns; here `_resumed` does
    names = [nodes.Name(name, "load") for name in plan.values]
    loop.iter = _filter(counted.node, "_resumed", nodes.List(names))
    for node in before:
        if isinstance(node, nodes.For) and "messages" not in computed:
            _search(node, plan)
    tree.set_environment(room)
    return plan


def _fits(tree: nodes.Template, loop: nodes.For, computed: set[str]) -> bool:
    """Whether what the loop does for a message depends on messages, on `loop` and on named values alone."""
    if loop.test is not None or loop.else_ or loop.recursive:
        return False
    inside = nodes.Template(loop.body)
    names = {one.name for one in tree.find_all(nodes.Name)}
    if _CHANGES & names or any(one.name == "random" for one in tree.find_all(nodes.Filter)):
        return False
    if any(True for _ in inside.find_all(_UNFIT)) or not _asks(loop.body, ASKED | NEIGHBOURS):
        return False
    if computed & {*_stored(loop.body, scopes=()), *(name.name for name in _names(loop.target))}:
        return False
    hidden = computed | {"messages", "loop", _PROMPT}
    for macro in tree.find_all(nodes.Macro):
        own = {one.name for one in macro.args} | {*_stored(macro.body, scopes=())}
        if ({*_loaded([*macro.body, *macro.defaults])} - own) & hidden or any(
            True for _ in macro.find_all(nodes.NSRef)
        ):
            return False
    return _PROMPT not in {*_loaded(loop.body)}


def _search(loop: nodes.For, plan: Plan) -> None:
    """Rewrite a loop that does something only for messages that meet a condition, if it is such a loop."""
    assert isinstance(loop.iter, nodes.Filter) and loop.iter.node is not None
    order, target = _order(loop.iter.node), loop.target
    steps = [node for node in loop.body if isinstance(node, nodes.If)]
    sets = [node for node in loop.body if isinstance(node, nodes.Assign)]
    if order is None or len(steps) != 1 or len(sets) + 1 != len(loop.body) or not isinstance(target, nodes.Name):
        return
    if loop.test is not None or loop.else_ or loop.recursive or not _asks(loop.body, ASKED):
        return
    if any(isinstance(one.target, nodes.NSRef) or any(True for _ in one.find_all(nodes.Call)) for one in sets):
        return
    step = steps[0]
    if step.elif_ or step.else_ or target.name in _stored(loop.body, scopes=()):
        return
    conditions = [*_conditions(step.test)]
    own = [one for one in conditions if {*_loaded([one])} <= {target.name}]
    inner = {target.name, "loop", *_stored(loop.body, scopes=())} - {name.name for name in loop.find_all(nodes.NSRef)}
    flags = [one for one in conditions if _is_flag(one, inner)]
    if own:
        test: nodes.Expr = own[0]
        for other in own[1:]:
            test = nodes.And(test, other)
        chosen = nodes.CondExpr(test, nodes.Const("1"), nodes.Const(""))
        about = (nodes.Const(order), nodes.Const(len(plan.live)))
        loop.iter = _filter(nodes.Name("messages", "load"), "_live", *about)
        plan.live.append((target.name, nodes.Template([nodes.Output([chosen])])))
    if flags:  # once it is down, only what it guards could raise it
        loop.body.append(nodes.If(nodes.Not(flags[0]), [nodes.Break()], [], []))


def _is_flag(condition: nodes.Expr, inner: set[str]) -> bool:
    """Whether this is `space.flag` or `not space.flag`, where only the step that it guards can change the flag."""
    flag = condition.node if isinstance(condition, nodes.Not) else condition
    return isinstance(flag, nodes.Getattr) and isinstance(flag.node, nodes.Name) and flag.node.name not in inner


def _order(messages: nodes.Expr) -> int | None:
    """1 for messages, -1 for messages[::-1], None for anything else."""
    if isinstance(messages, nodes.Name) and messages.name == "messages":
        return 1
    if isinstance(messages, nodes.Getitem) and isinstance(messages.arg, nodes.Slice):
        cut = messages.arg
        back = isinstance(cut.step, nodes.Neg) and isinstance(cut.step.node, nodes.Const) and cut.step.node.value == 1
        if back and cut.start is None and cut.stop is None and _order(messages.node) == 1:
            return -1
    return None


class _Tracker(NodeTransformer):
    """Puts filters around what is read of the values in `names`."""

    def __init__(self, names: set[str], keys: set[str]) -> None:
        self.names, self.keys = names, keys

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        if len(node.ops) == 1 and node.ops[0].op in OPERATORS:
            sides = [node.expr, node.ops[0].expr]
            keys = [self._key(side) for side in sides]
            tracked = [bool({*_loaded([side])} & self.names) for side in sides]
            for at in (0, 1):
                if keys[at] is not None and not tracked[1 - at]:
                    self.keys.add(str(keys[at]))
                    both = nodes.List([self.visit(side) if side is not sides[at] else side for side in sides])
                    about = (nodes.Const(node.ops[0].op), nodes.Const(keys[at]), nodes.Const(at))
                    return _filter(both, "_compared", *about)
        self.generic_visit(node)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        return self._read(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        return self._read(node)

    def visit_Name(self, node: nodes.Name) -> nodes.Node:
        return self._read(node)

    def _read(self, node: nodes.Expr) -> nodes.Node:
        key = self._key(node)
        if key is not None:
            self.keys.add(key)
            return _filter(node, "_exact", nodes.Const(key))
        self.generic_visit(node)
        return node

    def _key(self, node: nodes.Node) -> str | None:
        """The name of a value, as NAME or NAME.ATTRIBUTE."""
        if isinstance(node, nodes.Name):
            return node.name if node.ctx == "load" and node.name in self.names else None
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name in self.names:
            return f"{node.node.name}.{node.attr}"
        if isinstance(node, nodes.Getitem) and isinstance(node.node, nodes.Name) and node.node.name in self.names:
            return f"{node.node.name}.{node.arg.value}" if isinstance(node.arg, nodes.Const) else None
        return None


def _filter(node: nodes.Expr, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None)


def _conditions(test: nodes.Node) -> Iterator[nodes.Expr]:
    if isinstance(test, nodes.And):
        yield from (*_conditions(test.left), *_conditions(test.right))
    elif isinstance(test, nodes.Expr):
        yield test


def _asks(body: Sequence[nodes.Node], most: frozenset[str]) -> bool:
    """Whether `loop` stands in a body for nothing but these attributes."""
    inside = nodes.Template(list(body))
    attributes = [(one.node, one.attr) for one in inside.find_all(nodes.Getattr)]
    items = [(one.node, getattr(one.arg, "value", None)) for one in inside.find_all(nodes.Getitem)]
    asked = [of for node, of in (*attributes, *items) if isinstance(node, nodes.Name) and node.name == "loop"]
    return {*asked} <= most and len(asked) == sum(name.name == "loop" for name in inside.find_all(nodes.Name))


def _names(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


def _loaded(body: Sequence[nodes.Node]) -> Iterator[str]:
    return (name.name for node in body for name in _names(node) if name.ctx == "load")


def _stored(body: Sequence[nodes.Node], scopes: tuple[type[nodes.Node], ...] = _SCOPES) -> Iterator[str]:
    """The names that are set in a body, without those that are set in scopes of their own."""
    for node in body:
        if isinstance(node, nodes.Name):
            if node.ctx == "store":
                yield node.name
        elif isinstance(node, nodes.NSRef):
            yield node.name
        elif not isinstance(node, scopes):
            yield from _stored([*node.iter_child_nodes()], scopes)
