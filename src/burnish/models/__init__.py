"""The models of a run: loading, roles, LoRA, chat templates, optimisers, mixed precision, snapshots."""
