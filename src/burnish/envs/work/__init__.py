"""Tasks that are done with real tools: a shell, repositories, databases, an interpreter, documents, a browser."""
