"""Recipes: named stages in one file, each a training run or a command that makes data (docs/recipes.md)."""
