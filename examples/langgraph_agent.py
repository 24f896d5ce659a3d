"""An agent of LangGraph with a tool, trained as it is:

    pip install langgraph langchain-openai
    burnish train grpo --task add:1 --agent examples/langgraph_agent.py:run

The graph is LangGraph's own: the model is asked, its tool calls are made, it is asked again. burnish gives the base URL
and the key of the model that is being trained; the task's verifier judges the last reply.
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def run(task: dict[str, Any], base_url: str, api_key: str) -> None:
    """One episode."""
    model = ChatOpenAI(model="policy", base_url=base_url, api_key=api_key, max_retries=0).bind_tools([add])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    graph.compile().invoke({"messages": [dict(message) for message in task["prompt"]]}, {"recursion_limit": 8})
