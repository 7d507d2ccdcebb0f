"""From the target of a plan or a policy to muscle excitations."""
