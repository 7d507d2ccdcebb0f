"""From settings to the parts of a search, an evaluation or a report: what the API and the commands share."""
