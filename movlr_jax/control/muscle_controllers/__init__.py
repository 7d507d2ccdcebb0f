"""Muscle controllers: from the target of a plan or policy to muscle excitations."""
