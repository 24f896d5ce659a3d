"""Tools in a chat template that writes none: what stands before it puts schemas, calls and results into plain messages.

The form is that of Hermes and Qwen, which `envs/tools.py` reads in replies: schemas in <tools> of the system message,
calls as JSON in <tool_call>, results in <tool_response> of a user message. A template that refuses or drops system
messages gets the schemas before the first message of the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from burnish.models.template import Template

_TOLD = (
    "'You may call functions. These are their signatures:\\n<tools>' ~ told.tools ~ '\\n</tools>\\nTo call one, write "
    'its name and its arguments as JSON: <tool_call>{"name": NAME, "arguments": {...}}</tool_call>\''
)
_SYSTEM = """\
{%- if tools %}
{%- if told.said and told.said[0].role == 'system' %}
{%- set messages = [dict(told.said[0], content=told.said[0].content ~ '\\n\\n' ~ told.how)] + told.said[1:] %}
{%- else %}
{%- set messages = [{'role': 'system', 'content': told.how}] + told.said %}
{%- endif %}
{%- else %}
{%- set messages = told.said %}
{%- endif %}
"""
_USER = """\
{%- if tools %}
{%- set put = namespace(said=[], done=false) %}
{%- for message in told.said %}
{%- if message.role == 'user' and not put.done %}
{%- set put.done = true %}
{%- set put.said = put.said + [dict(message, content=told.how ~ '\\n\\n' ~ message.content)] %}
{%- else %}
{%- set put.said = put.said + [message] %}
{%- endif %}
{%- endfor %}
{%- set messages = put.said %}
{%- else %}
{%- set messages = told.said %}
{%- endif %}
"""
_HEAD = (
    """\
{%- set told = namespace(said=[], tools='', how='') %}
{%- for tool in tools or [] %}
{%- set told.tools = told.tools ~ '\\n' ~ (tool | tojson) %}
{%- endfor %}
{%- if tools %}{%- set told.how = """
    + _TOLD
    + """ %}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- set result = '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' %}
{%- if loop.previtem is defined and loop.previtem.role == 'tool' %}
{%- set told.said = told.said[:-1] + [{'role': 'user', 'content': told.said[-1].content ~ '\\n' ~ result}] %}
{%- else %}
{%- set told.said = told.said + [{'role': 'user', 'content': result}] %}
{%- endif %}
{%- elif message.tool_calls %}
{%- set calls = namespace(text=message.content or '') %}
{%- for call in message.tool_calls %}
{%- set call = call.function if call.function is defined else call %}
{%- set calls.text = calls.text ~ ('\\n' if calls.text else '') ~ '<tool_call>\\n{"name": ' ~ (call.name | tojson) \
~ ', "arguments": ' ~ (call.arguments | tojson) ~ '}\\n</tool_call>' %}
{%- endfor %}
{%- set told.said = told.said + [{'role': message.role, 'content': calls.text}] %}
{%- else %}
{%- set told.said = told.said + [message] %}
{%- endif %}
{%- endfor %}
"""
)
_PROBE = "\u2042SYSTEM\u2042"


def with_tools(template: str, values: Mapping[str, object]) -> str:
    """A chat template that writes tools, calls and results; itself, where it does so already.

    values: bos_token, eos_token and the like
    """
    if "tool_calls" in template:
        return template
    said = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "?"}]
    try:
        told = _PROBE in Template(template, values).render(said, generation=True)
    except ValueError:
        told = False
    return f"{_HEAD}{_SYSTEM if told else _USER}{{%- set tools = none %}}\n{template}"
