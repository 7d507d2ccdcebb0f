"""The HTML report of a run: data, views, charts and the page."""
