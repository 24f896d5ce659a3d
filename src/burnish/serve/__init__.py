"""An OpenAI-compatible endpoint: for inference, and to train any agent that speaks a protocol of `protocols.py`.

`asked.py` is what requests ask for in any protocol; `protocol.py` (chat completions), `responses.py`, `messages.py` and
`completions.py` read requests and write answers. `constraint.py` holds replies to JSON, `conversation.py` keeps the
tokens of each conversation, and `server.py` is the HTTP server, which leaves questions for the owner of the model.
"""

from burnish.serve.asked import Asked, BadRequest
from burnish.serve.conversation import Conversation
from burnish.serve.server import ChatServer, Question, Session

__all__ = ["Asked", "BadRequest", "ChatServer", "Conversation", "Question", "Session"]
