"""Model-written code: run in isolated processes, and graded outside them."""
