"""Settings: the schema, which is the only place of defaults, and the methods as data."""
