"""A recipe: everything that a run needs to know, in one flat TOML file.

    model = "nano"
    method = "rloo,gspo"
    tasks = "running_sums"

    [papers.gspo]
    clip_high = 5e-4

`load_recipe` finds it, applies `--set key=value`, and reports everything that is wrong in one go: where it stands, what
was given, what is wanted. Nothing here imports torch.
"""

from rlvr.recipe.file import RecipeError, find_recipe, load_recipe, make_recipe, recipes_dir, shipped
from rlvr.recipe.keys import Eval, Recipe, Setting, settings

__all__ = [
    "Eval",
    "Recipe",
    "RecipeError",
    "Setting",
    "find_recipe",
    "load_recipe",
    "make_recipe",
    "recipes_dir",
    "settings",
    "shipped",
]
