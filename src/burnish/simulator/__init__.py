"""What a run would take on a cluster that is not at hand: costs of its phases, and a simulator."""
