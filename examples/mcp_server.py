"""A small MCP server with two tools: burnish train grpo --task add:1 --tools "mcp:python examples/mcp_server.py"

It needs the package mcp, of either major version: pip install 'burnish[mcp]'.
"""

from __future__ import annotations

try:
    from mcp.server.mcpserver import MCPServer as Server  # mcp 2
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server  # mcp 1

server = Server("arithmetic")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool()
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b


if __name__ == "__main__":
    server.run(transport="stdio")
