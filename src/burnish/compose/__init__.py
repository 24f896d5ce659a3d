"""What rewrites a built method: several turns, seats, curricula, swapped parts, rewards, chunks, idle models."""
