"""Programs that a model wrote, graded: tests, outcomes, and what they are compared with."""
