"""Claims of papers, tested again: `rlvr retest NAME` runs experiments/NAME.toml and says what came out.

schema      what an experiment file holds
home        where experiments and their results are, and what git says of them
arms        from an arm, a learning rate and a seed to a recipe, and the recipe's mark
child       one run in a process of its own, and the record that is kept of it
queue       which runs an experiment wants next, and running them
statistics  paired differences, verdicts, Holm's adjustment
outcome     what an experiment's runs say
document    docs/papers.md; pictures: its plots
"""
