"""A user's reward functions: found, called in processes of their own, and limited in time."""
