"""The types, the wiring of parts, the method and the loop. Nothing here imports from the stages or from models."""
