"""Tool calls as models write them: one reader for each format, and the table of them."""

from burnish.tool_calls.call import ReadReply, ToolCall, call_id
from burnish.tool_calls.table import AUTO_READER, FORMATS, NAMES, Reader, format_of, parse_calls, reader_of

__all__ = [
    "AUTO_READER",
    "FORMATS",
    "NAMES",
    "ReadReply",
    "Reader",
    "ToolCall",
    "call_id",
    "format_of",
    "parse_calls",
    "reader_of",
]
