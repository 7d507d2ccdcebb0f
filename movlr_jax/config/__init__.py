"""Settings: the schema, which holds the defaults, and the methods as data."""
