"""Policies that a recording is made under: what is removed from it, and how its requests are matched."""
