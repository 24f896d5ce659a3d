"""The agent of openai_tools.py as a graph of LangGraph, trained as it is:

    pip install langgraph langchain-openai
    burnish train grpo --model boxes/sft/model --task boxes/questions.jsonl --agent examples/langgraph_boxes.py:run \\
        --agent-pays --steps 24 --prompts 8 --lr 2e-4 --max-new-tokens 48

The model and the questions are made by the first commands of openai_tools.py. burnish calls `run` for each episode; the
tool and the reward are the graph's own.
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
    """One episode: 1 for the right answer."""

    @tool("open")
    def open_box(box: int) -> str:
        """Open a box: the number in it."""
        return str(task["content"]) if box == task["box"] else "empty"

    model = ChatOpenAI(model="policy", base_url=base_url, api_key=api_key, max_retries=0).bind_tools([open_box])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([open_box]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    asked = [dict(message) for message in task["prompt"]]
    said = graph.compile().invoke({"messages": asked}, {"recursion_limit": 8})["messages"][-1].content
    return float(str(said).rpartition("answer: ")[2] == task["answer"])
