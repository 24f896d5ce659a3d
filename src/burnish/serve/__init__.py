"""An OpenAI-compatible endpoint: for inference, and to train any agent that speaks the protocol.

`protocol.py` reads requests and writes answers, `conversation.py` keeps the tokens of each conversation, `server.py`
is the HTTP server, which leaves questions for the owner of the model to answer.
"""

from burnish.serve.conversation import Conversation
from burnish.serve.protocol import Asked, BadRequest
from burnish.serve.server import ChatServer, Question, Session

__all__ = ["Asked", "BadRequest", "ChatServer", "Conversation", "Question", "Session"]
