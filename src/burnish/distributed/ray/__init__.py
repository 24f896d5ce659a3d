"""A run on Ray: samplers, graders and a trainer as actors."""
