"""Read YAML within limits: the one reader of it. Any failure is a ValueError.

YAML can be small to write and endless to expand: nine lists of nine aliases each are 300 bytes and a billion values
("billion laughs"), and whatever walks the value, copies it or writes it down meets all of them. So the graph of nodes
is measured, aliases and merges included, before any value is made of it.
"""

from __future__ import annotations

import yaml

from burnish.util.untrusted import DEEPEST

LARGEST = 1 << 22  # characters
VALUES = 100_000  # after aliases are expanded
LONGEST_NUMBER = 2000  # characters of a number; 1:59:59:... takes quadratic time
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def parse_yaml(text: str) -> object:
    """The value of a YAML text; ValueError, as one clause, if it is none, too large, too deep or expands too far."""
    if len(text) > LARGEST:
        raise ValueError(f"it has {len(text):,} characters; at most {LARGEST:,} are read")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _measured(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())[:300]}") from None
    except RecursionError:
        raise ValueError(f"it is nested too deeply; at most {DEEPEST} levels are read") from None
    except (TypeError, AttributeError, LookupError, OverflowError) as error:  # !!bool maybe, !!timestamp today
        raise ValueError(f"it is not YAML: a value does not have the type that it names ({error})") from None


def _measured(node: yaml.Node, sizes: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """How many values a node expands to, and in how many levels. sizes: of the nodes that were measured already; None
    for those that are being measured, which contain the present one."""
    if isinstance(node, yaml.ScalarNode):
        if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise ValueError(f"it has a number of {len(node.value):,} characters; at most {LONGEST_NUMBER} are read")
        return 1, 0
    if id(node) in sizes:
        measure = sizes[id(node)]
        if measure is None:
            raise ValueError("it has an alias of what the alias is in, so it never ends; write the value out")
        return measure
    sizes[id(node)] = None
    children = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
    values, levels = 1, 0
    for child in children:
        inside, below = _measured(child, sizes)
        values, levels = values + inside, max(levels, below)
        if values > VALUES:
            raise ValueError(f"it has more than {VALUES:,} values, aliases expanded; write fewer")
    if levels + 1 > DEEPEST:
        raise ValueError(f"it is nested too deeply; at most {DEEPEST} levels are read")
    sizes[id(node)] = values, levels + 1
    return values, levels + 1
