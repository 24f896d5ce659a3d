"""Configurations of TRL, LLaMA-Factory, Axolotl, Unsloth and verl, translated into those of burnish."""
