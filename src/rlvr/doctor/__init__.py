"""The doctor: looks at a recipe before it costs anything, and says in plain sentences what would go wrong.

Each file is one kind of check; `examine` puts them in order. What a check finds is a `Finding`.
"""
