"""What a sentence asks of a body: the grammar, the clauses, and what they say about an episode."""
